"""Finding a stored result, and telling why there is none that applies.

The lookup is one ref and one object. What it finds is compared, field by field,
with what a result measured now would hold for; a result of another source, problem
or tolerance is not an answer, however fast it was.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from castore.errors import MalformedError
from castore.format.canonical import encode, object_id
from castore.format.value import ObjectId
from castore.tuning.limits import limits_of, violation
from castore.tuning.machine import topology as this_topology
from castore.tuning.manifests import TuningManifest
from castore.tuning.records import Applicability
from castore.tuning.topology_manifest import differing_fields, silicon_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from castore.format.value import Value
    from castore.store.store import Store
    from castore.tuning.kernel import Kernel
    from castore.tuning.space import Schedule

Acceptance: TypeAlias = Literal["exact", "other-driver"]

_FIELDS_TOLD_MAX = 6


@dataclass(frozen=True, slots=True)
class Found:
    """A stored result that applies.

    Attributes:
        manifest: The result.
        object: Its id.
        topology: The id of the topology that it was measured on.
        is_exact: Whether that is the topology asked for. If not, it is the same silicon with
            other software.
        reason: Why it applies, in a sentence.
        fields: The topology's fields that differ; empty when it is exact.
    """

    manifest: TuningManifest
    object: ObjectId
    topology: ObjectId
    is_exact: bool
    reason: str
    fields: tuple[str, ...] = ()

    @property
    def schedule(self) -> Schedule:
        """The schedule to use."""
        return self.manifest.winner.schedule


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no stored result that applies.

    Attributes:
        reason: Why, in a sentence.
        fields: The names of what differs from the nearest stored result; empty when there is
            none at all.
    """

    reason: str
    fields: tuple[str, ...] = ()


def find(
    store: Store,
    kernel: Kernel,
    *,
    topology: str | dict[str, Value] | None = None,
    accept: Acceptance = "exact",
) -> Found | Missing:
    """Return the stored result of a kernel on a topology, if one applies.

    Nothing is measured and, when the topology is given, no device is started.

    Args:
        store: Where to look.
        kernel: The kernel with its problem.
        topology: A topology's manifest or id; without one, this machine's best device.
        accept: `exact`, or `other-driver` to take a result from the same silicon with other
            software too, if its schedule keeps the limits of this adapter.

    Raises:
        MalformedError: `accept` or the topology is none of these.
        DeviceUnavailableError: No topology was given and this machine has no device.
    """
    if accept not in ("exact", "other-driver"):
        raise MalformedError("accept", f"expected exact or other-driver, got {accept!r}")
    here = this_topology() if topology is None else topology
    here_id = ObjectId(here) if isinstance(here, str) else object_id(encode(here))
    answer = _at(store, kernel, here_id)
    if isinstance(answer, Found):
        return answer
    return _elsewhere(store, kernel, _manifest(store, here), here_id, accept, answer)


def _at(store: Store, kernel: Kernel, topology: ObjectId) -> Found | Missing | None:
    """Return what is stored for one topology; None when nothing is."""
    ref = store.get_ref("tuning", topology, kernel.text)
    value = store.lookup("tuning", topology, kernel.text)
    if ref is None or value is None:
        return None
    try:
        manifest = TuningManifest.from_value(value)
    except MalformedError as error:
        return Missing(
            f"what is stored for {kernel.text} is not a tuning manifest: {error}", ("manifest",)
        )
    differing = _differing(kernel, manifest)
    if differing:
        names = ", ".join(differing)
        return Missing(f"the stored result of {kernel.text} differs in {names}", differing)
    reason = f"{kernel.text} was tuned on this topology"
    return Found(manifest, ref.object, topology, is_exact=True, reason=reason)


def _differing(kernel: Kernel, manifest: TuningManifest) -> tuple[str, ...]:
    stored = manifest.applicability
    implementation = kernel.implementations.get(stored.implementation)
    if implementation is None:
        return ("implementation",)
    differing = Applicability.of(kernel, stored.implementation).differs_in(stored)
    if not differing and not implementation.space.admits(manifest.winner.schedule, kernel.sizes):
        return ("winner",)
    return differing


@dataclass(frozen=True, slots=True)
class _Neighbour:
    """What is stored for the kernel on another topology, and how that one differs from here."""

    topology: dict[str, Value] | None
    answer: Found | Missing
    differing: tuple[str, ...]

    @property
    def distance(self) -> tuple[int, int]:
        """Orders neighbours, nearest first and, among equals, newest first."""
        found = self.answer if isinstance(self.answer, Found) else None
        return (len(self.differing), -found.manifest.provenance.time_ns if found else 0)


def _elsewhere(
    store: Store,
    kernel: Kernel,
    here: dict[str, Value] | None,
    here_id: ObjectId,
    accept: Acceptance,
    at_home: Missing | None,
) -> Found | Missing:
    neighbours = sorted(
        _neighbours(store, kernel, here, here_id), key=lambda neighbour: neighbour.distance
    )
    refused = None
    if accept == "other-driver" and here is not None:
        for neighbour in neighbours:
            borrowed = _borrowed(kernel, here, neighbour)
            if isinstance(borrowed, Found):
                return borrowed
            refused = refused or borrowed
    if at_home is not None:
        return at_home
    if refused is not None:
        return refused
    if neighbours:
        return _known_elsewhere(kernel, neighbours[0])
    return Missing(f"{kernel.text} has not been tuned; run: castore tune {kernel.id}")


def _neighbours(
    store: Store, kernel: Kernel, here: dict[str, Value] | None, here_id: ObjectId
) -> Iterator[_Neighbour]:
    for ref in store.refs("topology"):
        answer = None if ref.object == here_id else _at(store, kernel, ref.object)
        if answer is None:
            continue
        there = _manifest(store, ref.object)
        differing: tuple[str, ...] = ("topology",)
        if here is not None and there is not None:
            differing = differing_fields(here, there)
        yield _Neighbour(there, answer, differing)


def _borrowed(
    kernel: Kernel, here: dict[str, Value], neighbour: _Neighbour
) -> Found | Missing | None:
    """Return a neighbour's result for here; why it cannot be used; None if it is no candidate."""
    found, there = neighbour.answer, neighbour.topology
    if not isinstance(found, Found) or there is None or silicon_id(here) != silicon_id(there):
        return None
    implementation = kernel.implementations[found.manifest.applicability.implementation]
    program = implementation.program(kernel, found.schedule)
    broken = violation(program, limits_of(here))
    if broken is not None:
        reason = f"the result from the same silicon does not fit this adapter: {broken}"
        return Missing(reason, ("topology.software.limits",))
    told = _told(neighbour.differing)
    reason = f"{kernel.text} was tuned on the same silicon with other software: {told}"
    return dataclasses.replace(found, is_exact=False, reason=reason, fields=neighbour.differing)


def _known_elsewhere(kernel: Kernel, neighbour: _Neighbour) -> Missing:
    if isinstance(neighbour.answer, Missing):
        return neighbour.answer
    told = _told(neighbour.differing)
    reason = f"{kernel.text} was tuned on another topology, which differs in {told}"
    return Missing(reason, neighbour.differing)


def _told(fields: tuple[str, ...]) -> str:
    told = ", ".join(fields[:_FIELDS_TOLD_MAX])
    more = len(fields) - _FIELDS_TOLD_MAX
    return f"{told} and {more} more" if more > 0 else told


def _manifest(store: Store, topology: str | dict[str, Value]) -> dict[str, Value] | None:
    if isinstance(topology, dict):
        return topology
    found = store.lookup("topology", topology, "topology")
    return found if isinstance(found, dict) else None
