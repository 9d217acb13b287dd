"""Refs: small mutable names for objects, and the log of their changes.

`reading` reads and lists the loose refs of one store, `database` asks a store and its
alternates, `log` reads their logs, `transaction` changes refs. Nothing here knows how
objects are kept: whoever changes a ref says how to tell whether an object is sound.
"""
