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
from castore.tuning import kernels
from castore.tuning.errors import SourceUnavailableError
from castore.tuning.limits import limits_of, violation
from castore.tuning.machine import topology as this_topology
from castore.tuning.manifests import TuningManifest
from castore.tuning.records import Applicability
from castore.tuning.statistics import SYNTHETIC
from castore.tuning.topology_manifest import (
    differing_fields,
    is_replayed,
    is_topology,
    runs_on_numpy,
    silicon_id,
)

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
    if isinstance(here, str):
        here_id, described = ObjectId(here), None
    else:
        if not is_topology(here):
            raise MalformedError("topology", "expected an id, or maps `silicon` and `software`")
        here_id, described = object_id(encode(here)), here
    answer = _at(store, kernel, here_id, described)
    if isinstance(answer, Found):
        return answer
    described = described or _described(store, here_id)
    return _elsewhere(store, kernel, described, here_id, accept, answer)


def _at(
    store: Store, kernel: Kernel, topology: ObjectId, described: dict[str, Value] | None
) -> Found | Missing | None:
    """Return what is stored for one topology; None when nothing is."""
    value = store.lookup("tuning", topology, kernel.text)
    if value is None:
        return None
    try:
        manifest = TuningManifest.from_value(value)
    except MalformedError as error:
        return Missing(
            f"what is stored for {kernel.text} is not a tuning manifest: {error}", ("manifest",)
        )
    try:
        differing = _differing(kernel, manifest, described)
    except SourceUnavailableError as error:
        reason = f"{kernel.text} cannot be compared with what was tuned: {error}"
        return Missing(reason, ("source",))
    if differing:
        names = ", ".join(differing)
        return Missing(f"the stored result of {kernel.text} differs in {names}", differing)
    reason = f"{kernel.text} was tuned on this topology"
    # Of what was read, and not of the ref, which may name another object by now.
    found = object_id(encode(value))
    return Found(manifest, found, topology, is_exact=True, reason=reason)


def _differing(
    kernel: Kernel, manifest: TuningManifest, described: dict[str, Value] | None
) -> tuple[str, ...]:
    stored = manifest.applicability
    implementation = kernel.implementations.get(stored.implementation)
    if implementation is None:
        return ("implementation",)
    if described is not None:
        if runs_on_numpy(described) != (stored.implementation == "numpy"):
            return ("implementation",)
        if is_replayed(described) != (manifest.winner.timing.source == SYNTHETIC):
            return ("winner.timing.source",)
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
    def distance(self) -> tuple[bool, int, int]:
        """Orders neighbours, nearest first, then newest first; last those nobody can describe."""
        found = self.answer if isinstance(self.answer, Found) else None
        newest_first = -found.manifest.provenance.time_ns if found else 0
        return (self.topology is None, len(self.differing), newest_first)


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
    # The command knows what is built in, and only in its usual size.
    how = "call: castore.tuning.tune(store, kernel)"
    if kernel in kernels.BUILT_IN:
        how = f"run: castore tune {kernel.id}"
    return Missing(f"{kernel.text} has not been tuned; {how}")


def _neighbours(
    store: Store, kernel: Kernel, here: dict[str, Value] | None, here_id: ObjectId
) -> Iterator[_Neighbour]:
    for ref in store.refs("topology"):
        if ref.object == here_id or store.get_ref("tuning", ref.object, kernel.text) is None:
            continue
        there = _described(store, ref.object)
        answer = _at(store, kernel, ref.object, there)
        if answer is None:
            continue
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
    # An adapter that the CPU plays, and numpy, share their silicon and nothing else.
    if runs_on_numpy(here) != runs_on_numpy(there) or is_replayed(here) != is_replayed(there):
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
        reason = f"on another topology, {neighbour.answer.reason}"
        return Missing(reason, neighbour.answer.fields)
    told = _told(neighbour.differing)
    reason = f"{kernel.text} was tuned on another topology, which differs in {told}"
    return Missing(reason, neighbour.differing)


def _told(fields: tuple[str, ...]) -> str:
    told = ", ".join(fields[:_FIELDS_TOLD_MAX])
    more = len(fields) - _FIELDS_TOLD_MAX
    return f"{told} and {more} more" if more > 0 else told


def _described(store: Store, topology: ObjectId) -> dict[str, Value] | None:
    """Return a topology's manifest; None if the store lacks it, or it is none that we know."""
    found = store.lookup("topology", topology, "topology")
    return found if isinstance(found, dict) and is_topology(found) else None
