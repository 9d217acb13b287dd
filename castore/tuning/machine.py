"""Which topology this machine is, for a device or for the best one that it has."""

from __future__ import annotations

import copy
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, TypeAlias

from castore.tuning.errors import DeviceUnavailableError, PackageMissingError
from castore.tuning.host import usable_cores
from castore.tuning.worker_process import describe

if TYPE_CHECKING:
    from castore.format.value import Value

PREFERRED = ("wgpu", "numpy")
"""What `auto` tries, in this order; numpy is there wherever tuning is."""

_KNOWN_MAX = 16
# They change all the time, and no driver looks at them.
_PASSING = frozenset({"COLUMNS", "LINES", "OLDPWD", "PWD", "PYTEST_CURRENT_TEST", "SHLVL", "_"})

_Surroundings: TypeAlias = tuple[object, ...]
_known: dict[tuple[str, _Surroundings], dict[str, Value] | str] = {}


def topology(device: str = "auto") -> dict[str, Value]:
    """Return the topology manifest of this machine with a device.

    The answer is kept for as long as the environment stays as it is, since variables choose
    drivers: hardware does not change under a running process. The first call takes a second or
    so, as a process of its own looks for the device. `auto` also remembers what it did not
    find; asking for that device by name looks again.

    Args:
        device: `wgpu`, `numpy`, another entry point of `castore.devices`, or `auto`: wgpu
            where it is installed and finds an adapter, else numpy.

    Raises:
        DeviceUnavailableError: There is no such device here.
        PackageMissingError: numpy is not installed.
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
            _described(name, look_again=False)
        except DeviceUnavailableError as error:
            reasons.append(str(error))
        else:
            return name
    raise DeviceUnavailableError("auto", "; ".join(reasons))


def forget() -> None:
    """Look again for every device that is asked for from now on."""
    _known.clear()


def _described(device: str, *, look_again: bool = True) -> dict[str, Value]:
    key = (device, _surroundings())
    found = _known.get(key)
    if found is None or (isinstance(found, str) and look_again):
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        if importlib.util.find_spec("numpy") is None:
            raise PackageMissingError("numpy", "tune")  # which every worker needs
        try:
            found = describe(device)
        except DeviceUnavailableError as error:
            found = error.reason
        _known[key] = found
    if isinstance(found, str):
        raise DeviceUnavailableError(device, found)
    return found


def _surroundings() -> _Surroundings:
    """Return what a worker would inherit."""
    variables = tuple(item for item in os.environ.items() if item[0] not in _PASSING)
    return (variables, tuple(sys.path), usable_cores())
