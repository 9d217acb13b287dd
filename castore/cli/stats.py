"""`castore stats`: count what is in the store."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from castore.cli import progress, stores
from castore.cli.parser import Help
from castore.cli.status import ExitStatus
from castore.cli.text import size_text
from castore.maintenance import stats

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output
    from castore.maintenance.stats import Stats

HELP = Help(
    description="""\
Count what is in the store: objects and their size on disk, refs of each namespace,
logs, pins, and what was left over or moved to quarantine. Reads no object and
changes nothing.""",
    examples=("castore stats", "castore stats --json"),
    statuses=(ExitStatus.NOT_FOUND, ExitStatus.UNUSABLE),
)


def configure(_parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no arguments of its own."""


def run(args: argparse.Namespace, output: Output) -> int:
    """Print the numbers."""
    with stores.to_read(args) as store, progress.counting("counting") as tell:
        found = stats.collect(store, progress=tell)
        where = str(store.root)
    if output.as_json:
        output.data({"store": where, **asdict(found)})
    else:
        output.lines(_lines(where, found))
    return ExitStatus.DONE


def _lines(where: str, found: Stats) -> list[str]:
    refs = [(f"refs in {name}", f"{count:,}") for name, count in sorted(found.refs.items())]
    rows = [
        ("store", where),
        ("objects", f"{found.objects:,} ({size_text(found.object_bytes)} on disk)"),
        *refs,
        ("named refs", f"{found.names:,}"),
        ("ref logs", size_text(found.log_bytes)),
        ("pins", f"{found.pins:,}"),
        ("temp files", f"{found.temp_files:,}"),
        ("in the trash", f"{found.trash:,}"),
        ("in quarantine", f"{found.quarantine:,}"),
        *(("reads below it", alternate) for alternate in found.alternates),
    ]
    width = max(len(label) for label, _ in rows)
    return [f"{label:<{width}}  {text}" for label, text in rows]
