"""The exit statuses of the command: one table, which the help prints."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """What the command returns; `CastoreError.exit_status` holds these numbers too."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    DAMAGE = 4
    LOCKED = 5
    CONFLICT = 6
    UNUSABLE = 7
    NOTHING_ACCEPTABLE = 8
    INCOMPLETE = 9
    INTERRUPTED = 130
    READER_GONE = 141


MEANINGS = {
    ExitStatus.DONE: "done, or nothing to do",
    ExitStatus.FAILED: "another failure, such as a full disk",
    ExitStatus.USAGE: "the command line or the input is malformed, or an abbreviation ambiguous",
    ExitStatus.NOT_FOUND: "the store, object, ref or kernel asked for does not exist",
    ExitStatus.DAMAGE: "damage was found",
    ExitStatus.LOCKED: "another process held a lock for too long",
    ExitStatus.CONFLICT: "a ref names another object than the command allows",
    ExitStatus.UNUSABLE: "the store cannot be used so: unknown version, read-only or unsafe",
    ExitStatus.NOTHING_ACCEPTABLE: "tuning found no acceptable candidate",
    ExitStatus.INCOMPLETE: "not all could be checked, or this machine lacks a device or package",
    ExitStatus.INTERRUPTED: "interrupted with Ctrl-C",
    ExitStatus.READER_GONE: "the reader of the output went away, as with `| head`",
}
