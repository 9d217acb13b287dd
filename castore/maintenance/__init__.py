"""Work over a whole store: checking, collecting, forgetting, counting.

Each is a function over a `Store`, not a method of it. What changes a store comes as
`plan(...)`, which returns data that can be shown, and `apply(...)`, which does it.
"""
