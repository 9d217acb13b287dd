"""The schemas of the manifests that castore itself writes, for `castore fsck --strict`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.compat.config_manifest import config_in
from castore.tuning.evidence import Evidence
from castore.tuning.fields import Fields
from castore.tuning.manifests import CertificationManifest, TuningManifest
from castore.tuning.topology_manifest import SCHEMA as TOPOLOGY_SCHEMA

if TYPE_CHECKING:
    from castore.format.value import Value
    from castore.maintenance.object_check import Schemas


def check_topology(value: Value) -> None:
    """Return if a value is a topology manifest.

    Raises:
        MalformedError: It is not.
    """
    fields = Fields.of(value)
    fields.manifest_of("topology", TOPOLOGY_SCHEMA)
    for part in ("silicon", "software"):
        fields.fields(part)


SCHEMAS: Schemas = {
    "tuning": TuningManifest.from_value,
    "certification": CertificationManifest.from_value,
    "evidence": Evidence.from_value,
    "topology": check_topology,
    "config": config_in,
}
