"""What a test may lack: a WebGPU adapter, a tool, or the rights of root.

Without them a test is skipped, with the reason and what to install. Where
CASTORE_TEST_REQUIRE=all is set, as in CI, it fails instead: a check that nobody sees
skipped is no check. How much the sweeps have tried is summed up at the end of the run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from castore import tuning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TRIED = "tried: "
_PACKAGES = {
    "mkfs.exfat": "exfatprogs",
    "mount.exfat-fuse": "exfat-fuse",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "mkfs.btrfs": "btrfs-progs",
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    missing = next(_missing(item), None)
    if missing is None:
        return
    if os.environ.get("CASTORE_TEST_REQUIRE") == "all":
        pytest.fail(f"CASTORE_TEST_REQUIRE=all, and {missing}", pytrace=False)
    pytest.skip(missing)


def _missing(item: pytest.Item) -> Iterator[str]:
    if item.get_closest_marker("adapter") is not None and (reason := _no_adapter()):
        yield f"no WebGPU adapter ({reason}); on Debian: apt-get install mesa-vulkan-drivers"
    if item.get_closest_marker("root") is not None and (reason := _no_root()):
        yield f"{reason}; run the tests as root"
    for marker in item.iter_markers("tools"):
        for tool in marker.args:
            if shutil.which(tool) is None:
                yield f"no {tool}; on Debian: apt-get install {_PACKAGES.get(tool, tool)}"


@cache
def _no_adapter() -> str:
    try:
        tuning.topology("wgpu")
    except tuning.DeviceUnavailableError as error:
        return str(error)
    return ""


@cache
def _no_root() -> str:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "not root"
    if shutil.which("unshare") is None:
        return "no unshare"
    # A container's root may lack the right to mount anything.
    unshare = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return "" if unshare.returncode == 0 else "root, but without the right to mount"


@pytest.fixture
def tried(record_property: Callable[[str, object], None]) -> Callable[[str, int], None]:
    """Note how many of something a test has tried, such as `tried("kills", 40)`."""
    return lambda what, count: record_property(f"{_TRIED}{what}", count)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counts: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, count in getattr(report, "user_properties", ()):
                if name.startswith(_TRIED) and report.when == "call":
                    counts[name.removeprefix(_TRIED)] += count
    if counts:
        told = ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()))
        terminalreporter.write_line(f"tried: {told}")
