"""What fsck can find: one table of stable ids, severities and meanings.

SPEC.md lists the same ids; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

Severity = Literal["error", "warning", "info"]

FINDINGS: dict[str, tuple[Severity, str]] = {
    "object-damaged": ("error", "an object's file does not hold the object that its name promises"),
    "object-malformed": ("error", "an object has the right id but is not msgpack of known types"),
    "object-not-canonical": ("error", "an object's content is not its value's canonical spelling"),
    "object-link-missing": ("error", "an object links strongly to an object that is not there"),
    "object-unreadable": ("error", "an object's file could not be read; it may be whole"),
    "object-foreign-file": ("warning", "something that castore did not name lies in objects/"),
    "manifest-invalid": ("warning", "a manifest does not follow the schema of its kind"),
    "ref-damaged": ("error", "a ref's file is damaged, or lies under a name that is not its own"),
    "ref-object-missing": ("error", "a ref names an object that is not there"),
    "ref-topology-foreign": ("info", "a ref's topology is not an object of this store"),
    "ref-unreadable": ("error", "refs could not be read; they may be whole"),
    "log-damaged": ("warning", "a line of a ref log is torn or damaged; the others are read"),
    "pin-object-missing": ("warning", "a pin protects an object that is not there"),
    "foreign-file": ("warning", "something that castore did not name lies in the store"),
    "rights-differ": ("warning", "others may write it, or not read it, than the store's folder"),
    "trash-leftover": ("info", "a gc was stopped half-way; the next one puts these objects back"),
    "temp-leftover": ("info", "a write was stopped half-way; gc sweeps its file after a day"),
    "lease-leftover": ("info", "a writer was stopped half-way; gc sweeps its lease file"),
    "quarantined": ("info", "a damaged file was moved to local/quarantine"),
}


class Level(Enum):
    """How closely fsck looks; each level finds what the ones before it find."""

    QUICK = "quick"
    """Names, kinds and sizes of all files, and whether refs resolve; nothing is decompressed."""

    DEFAULT = "default"
    """Also every object's content against its id, its links, and the logs."""

    STRICT = "strict"
    """Also canonical spelling, manifests against their schemas, rights and lease files."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that fsck found.

    Attributes:
        id: Which kind, a key of `FINDINGS`.
        subject: What it concerns: an id, a ref or a path, as shown to people.
        message: What is wrong with it.
        missing: The object that is not there, where the finding is that one is missing.
    """

    id: str
    subject: str
    message: str
    missing: str = ""

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return FINDINGS[self.id][0]
