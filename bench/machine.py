"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

_LIBRARIES = ("castore", "blake3", "msgpack", "zstandard")
_PROC_CPU = "/proc/cpuinfo"
_PROC_MOUNTS = "/proc/self/mountinfo"


def describe(folder: str) -> dict[str, str]:
    """Return versions, kernel, processor and the file system of `folder`, in words."""
    implementation = f"{platform.python_implementation()} {platform.python_version()}"
    return {
        "python": implementation,
        **{name: _version(name) for name in _LIBRARIES},
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": file_system(folder),
        "cpu": _cpu(),
        "cores": str(os.cpu_count() or "unknown"),
    }


def file_system(folder: str) -> str:
    """Return the type of the file system that a folder is on, or `unknown`."""
    try:
        with open(_PROC_MOUNTS, encoding="utf-8", errors="replace") as lines:
            mounts = [line.split() for line in lines]
    except OSError:
        return "unknown"
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for fields in mounts:
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return "unknown"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _cpu() -> str:
    try:
        with open(_PROC_CPU, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
