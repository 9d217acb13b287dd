"""A store: opening it, and the thin class that ties objects and refs together."""
