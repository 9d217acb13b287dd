"""What is known about this machine's CPU and operating system, without any package."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from castore.format.value import Value

_SIMD_LEVELS = (
    ("avx512f", "avx512"),
    ("avx2", "avx2"),
    ("avx", "avx"),
    ("sse4_2", "sse4.2"),
    ("sve", "sve"),
    ("asimd", "neon"),
    ("neon", "neon"),
)
"""Flags of /proc/cpuinfo, widest first, and the level that each stands for."""

# Parts of a device's name that tell about its driver, such as "(LLVM 15.0.6, 256 bits)",
# "(RADV NAVI31)" or "/PCIe/SSE2". "(R)" and "(TM)" are left alone.
_DRIVER_PART = re.compile(
    r"\s*\([^()]*(?:\d+\.\d+|LLVM|DRM|RADV|ACO|radeonsi|Mesa)[^()]*\)|/PCIe/SSE2", re.IGNORECASE
)


def cpu_silicon() -> dict[str, Value]:
    """Return the CPU's model, core count and SIMD level, as far as they are known."""
    info = _cpuinfo()
    model = info.get("model name") or info.get("Model") or platform.processor()
    facts: dict[str, Value] = {"adapter_type": "cpu", "architecture": platform.machine()}
    if model:
        facts["cpu_model"] = " ".join(model.split())
    cores = os.cpu_count()
    if cores:
        facts["cores"] = cores
    flags = set((info.get("flags") or info.get("Features") or "").split())
    simd = next((level for flag, level in _SIMD_LEVELS if flag in flags), None)
    if simd:
        facts["simd"] = simd
    return _known(facts)


def operating_system() -> dict[str, Value]:
    """Return the operating system's name and release, as far as they are known."""
    release = re.match(r"\d+\.\d+", platform.release())
    # Major and minor only: distributions raise the rest every few weeks.
    os_release = release.group() if release else ""
    return _known({"os": platform.system(), "os_release": os_release})


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def device_name(name: str) -> str:
    """Return a device's name without what it tells about its driver."""
    return " ".join(_DRIVER_PART.sub("", name).split())


def _cpuinfo() -> dict[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return {}  # Not Linux: `platform` knows less, and what is unknown is left out.
    first_processor = text.partition("\n\n")[0].splitlines()
    pairs = (line.partition(":") for line in first_processor)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _known(facts: dict[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in facts.items() if value != ""}
