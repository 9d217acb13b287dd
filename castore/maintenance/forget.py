"""Drop refs by policy, so that a later gc can remove what only they kept.

Each leaves an entry in its log: until gc has removed the object, which takes at
least the log's expiry, `restore` brings it back.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from castore.errors import RefConflictError
from castore.format import layout
from castore.store.store import TOPOLOGY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from castore.format.ref import Ref
    from castore.store.store import Store

_RACES_MAX = 10


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """What a forget would drop.

    Attributes:
        refs: The refs.
    """

    refs: tuple[Ref, ...]


def plan(
    store: Store,
    *,
    namespace: str | None = None,
    topology: str | None = None,
    kernel: str | None = None,
    older_than_s: float | None = None,
    clock_s: Callable[[], float] = time.time,  # noqa: TID251 - the default clock
) -> ForgetPlan:
    """Return the refs that meet every condition given; changes nothing.

    The refs that say which topologies a store knows go only when their namespace is named.

    Args:
        store: The store.
        namespace: Only refs of this namespace.
        topology: Only refs for this topology, by its id.
        kernel: Only refs for exactly this kernel text.
        older_than_s: Only refs that were last changed longer ago than this, in seconds.
        clock_s: Now, in seconds since the epoch.
    """
    before_ns = None if older_than_s is None else int((clock_s() - older_than_s) * 10**9)
    chosen = (
        ref
        for ref in _candidates(store, namespace)
        if (topology is None or ref.topology == topology)
        and (kernel is None or ref.kernel == kernel)
        and (before_ns is None or _changed_ns(store, ref) < before_ns)
    )
    return ForgetPlan(tuple(chosen))


def apply(store: Store, plan: ForgetPlan, *, reason: str = "forget") -> int:
    """Drop the refs of a plan that still name what they named, and return how many.

    Raises:
        RefConflictError: Other writers kept replacing refs of the plan; none was dropped.
    """
    for _ in range(_RACES_MAX):
        with contextlib.suppress(RefConflictError):
            return _drop(store, plan, reason)
    return _drop(store, plan, reason)


def _drop(store: Store, plan: ForgetPlan, reason: str) -> int:
    dropped = 0
    with store.batch():
        for ref in plan.refs:
            with contextlib.suppress(RefConflictError):
                dropped += store.delete_ref(
                    ref.namespace,
                    ref.topology,
                    ref.kernel,
                    key=ref.key if ref.topology is None else None,
                    expected=ref.object,
                    reason=reason,
                )
    return dropped


def _candidates(store: Store, namespace: str | None) -> Iterator[Ref]:
    for ref in store.refs(namespace):
        if namespace is not None or ref.namespace != TOPOLOGY:
            yield ref


def _changed_ns(store: Store, ref: Ref) -> int:
    """Return when the ref's file was written, by the file system's clock."""
    try:
        return store.fs.stat(layout.ref_path(ref.namespace, ref.key)).mtime_ns
    except FileNotFoundError:
        return 0  # an alternate has it
