"""The only code of castore that touches the disk.

`protocol` states what castore asks of a file system and what each call promises;
`posix` gives it over a real one, `memory` over one that can lose power. Nothing
here knows what is stored.
"""
