"""The command: `python -m bench` lists, `python -m bench NAME` runs."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import tempfile
from typing import TYPE_CHECKING, cast

from bench import machine, report
from bench.measure import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.measure import Bench

_BENCHES = ("store", "scale", "startup", "compat", "reliability")
_IN_MEMORY = ("tmpfs", "ramfs")
_DESCRIPTION = """\
Measure castore against the same work written out bare, and print a table for
each bench. Data goes to a temporary folder, which is removed at the end.
"""
_EPILOG = """\
exit status:
  0    the benches ran, whether or not the limits hold
  2    the arguments are wrong
  130  interrupted

examples:
  python -m bench
  python -m bench store
  python -m bench all --json --dir /mnt/disk
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = _parser().parse_args(arguments)
    if options.name is None:
        for name in _BENCHES:
            print(f"{name:11} {_promise(name)}")
        print(f"{'all':11} These, one after the other.")
        return 0
    # Without a handler the folder would stay behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for name in _BENCHES if options.name == "all" else (options.name,):
            _run(name, options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def _run(name: str, options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="castore-bench-", dir=options.dir) as folder:
        about = machine.describe(folder)
        if about["file system"] in _IN_MEMORY:
            print(f"note: {folder} is in memory, where a sync costs nothing", file=sys.stderr)
        bench = cast("Bench", importlib.import_module(f"bench.{name}").run)
        result = bench(Plan(folder, quick=options.quick, count=options.count))
    shown = report.as_json if options.json else report.as_table
    print(shown(name, result, about), flush=True)


def _promise(name: str) -> str:
    text = importlib.import_module(f"bench.{name}").__doc__ or ""
    return text.partition("\n")[0]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", choices=(*_BENCHES, "all"), help="what to run")
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each")
    parser.add_argument(
        "--quick", action="store_true", help="a few operations only, to see that it works"
    )
    parser.add_argument(
        "--count",
        type=int,
        metavar="N",
        help="how many objects reliability compares (default: as many as its limits are for)",
    )
    parser.add_argument(
        "--dir", default=".", help="where to put the data: on a disk (default: here)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
