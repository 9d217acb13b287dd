"""The formats of castore, as pure functions between bytes and values.

SPEC.md beside this file is the authority; each rule there has a number, and the
errors raised here name it. Nothing in this package touches a disk, a clock or
chance, so every rule can be tested with bytes alone.
"""
