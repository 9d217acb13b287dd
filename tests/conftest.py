"""What a test may lack: a WebGPU adapter, or a tool.

Without them a test is skipped, with the reason and what to install. Where
CASTORE_TEST_REQUIRE=all is set, as in CI, it fails instead: a check that nobody sees
skipped is no check.
"""

from __future__ import annotations

import os
import shutil
from functools import cache
from typing import TYPE_CHECKING

import pytest

from castore import tuning

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    for marker in item.iter_markers("tools"):
        for tool in marker.args:
            if shutil.which(tool) is None:
                yield f"no {tool}; on Debian: apt-get install {tool}"


@cache
def _no_adapter() -> str:
    try:
        tuning.topology("wgpu")
    except tuning.DeviceUnavailableError as error:
        return str(error)
    return ""
