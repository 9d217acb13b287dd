"""The device that `--device` means here, and what it is in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output
    from castore.format.value import Value


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses a device."""
    parser.add_argument(
        "--device",
        choices=("auto", "wgpu", "numpy"),
        default="auto",
        help="wgpu: what WebGPU finds, which may be a software adapter that runs on the CPU; "
        "numpy: the CPU; auto: wgpu where there is an adapter, else numpy (default: auto)",
    )


def chosen(device: str, output: Output) -> tuple[str, dict[str, Value]]:
    """Return the device that a name means here with its topology; says why `auto` is numpy.

    Raises:
        DeviceUnavailableError: There is no such device here.
        PackageMissingError: numpy is not installed, without which no device works.
    """
    from castore.tuning.errors import DeviceUnavailableError  # noqa: PLC0415 - quick start
    from castore.tuning.machine import PREFERRED, topology  # noqa: PLC0415 - as above

    if device != "auto":
        return device, topology(device)
    *better, last = PREFERRED
    for name in better:
        try:
            return name, topology(name)
        except DeviceUnavailableError as error:
            output.note(f"castore: using {last}: {error}")
    return last, topology(last)


def device_text(device: str, topology: Value) -> str:
    """Return a device in words, such as `numpy: AMD EPYC, the CPU`."""
    silicon = part(topology, "silicon")
    name = first_text(part(topology, "software"), "device_text")
    name = name or first_text(silicon, "device", "cpu_model") or "unknown hardware"
    if first_text(silicon, "adapter_type") != "cpu":
        return f"{device}: {name}"
    what = "the CPU" if device == "numpy" else "a software adapter that runs on the CPU"
    return f"{device}: {name}, {what}"


def part(topology: Value, name: str) -> dict[str, Value]:
    """Return a part of a topology manifest; empty where a foreign one lacks it."""
    found = topology.get(name) if isinstance(topology, dict) else None
    return found if isinstance(found, dict) else {}


def first_text(facts: dict[str, Value], *names: str) -> str:
    """Return the first of these facts that is a text; empty where none is."""
    found = (facts.get(name) for name in names)
    return next((text for text in found if isinstance(text, str)), "")
