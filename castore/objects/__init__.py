"""Objects: immutable content under its id, in one or more sources.

`source` states what a source of objects is, `loose` keeps each object in a file of
its own, `staging` publishes many at once, and `database` asks all sources and checks
every id, in one place.
"""
