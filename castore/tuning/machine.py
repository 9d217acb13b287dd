"""Which topology this machine is, for a device or for the best one that it has."""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import TYPE_CHECKING

from castore.tuning.errors import DeviceUnavailableError
from castore.tuning.worker_process import describe

if TYPE_CHECKING:
    from castore.format.value import Value

PREFERRED = ("wgpu", "numpy")
"""What `auto` tries, in this order; numpy is there wherever tuning is."""


def topology(device: str = "auto") -> dict[str, Value]:
    """Return the topology manifest of this machine with a device.

    The answer is kept: hardware and drivers do not change under a running process. The first
    call takes a second or so, as a process of its own looks for the device.

    Args:
        device: `wgpu`, `numpy`, another entry point of `castore.devices`, or `auto`: wgpu
            where it is installed and finds an adapter, else numpy.

    Raises:
        DeviceUnavailableError: There is no such device here.
    """
    return copy.deepcopy(_described(chosen(device)))


def chosen(device: str) -> str:
    """Return the device that a name means here: `auto` is resolved, others are as they are.

    Raises:
        DeviceUnavailableError: `auto` found none.
    """
    if device != "auto":
        return device
    reasons = []
    for name in PREFERRED:
        try:
            _described(name)
        except DeviceUnavailableError as error:
            reasons.append(str(error))
        else:
            return name
    raise DeviceUnavailableError("auto", "; ".join(reasons))


# A failure is not kept: a package may be installed meanwhile.
@lru_cache(maxsize=16)
def _described(device: str) -> dict[str, Value]:
    return describe(device)
