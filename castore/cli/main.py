"""The entry point: runs one command and turns every error into one line and a status."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from typing import TYPE_CHECKING

from castore import __version__
from castore.cli.output import Output
from castore.cli.parser import COMMANDS, build, load
from castore.cli.status import ExitStatus
from castore.cli.text import printable
from castore.errors import CastoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (without the program's name) and return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    try:
        with _tolerant_streams(), _warnings_shown():
            status: int = _run(arguments)
            sys.stdout.flush()
    except BrokenPipeError:
        status = ExitStatus.READER_GONE
    except KeyboardInterrupt:
        status = ExitStatus.INTERRUPTED
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        status = _told(error)
    _settle_stdout()
    return status


def _told(error: Exception) -> int:
    """Say what went wrong, and what helps, in one line; return the status for it."""
    hints = getattr(error, "__notes__", [])
    if isinstance(error, CastoreError):
        _say("; ".join([str(error), *hints]))
        return error.exit_status
    if isinstance(error, ModuleNotFoundError) and error.name and "castore" not in error.name:
        _say(f"{error.name} is not installed; run: pip install 'castore[tune]'")
        return ExitStatus.INCOMPLETE
    if isinstance(error, OSError):
        _say("; ".join([_os_error_text(error), *hints]))
    else:
        text = f"{type(error).__name__}: {error}"
        _say(f"{text} (a fault in castore; for the place: python -X dev -m castore ...)")
    return ExitStatus.FAILED


def _run(arguments: list[str]) -> int:
    # A word may be a value that only looks like a command; that imports a module too many.
    parser = build(COMMANDS.keys() & arguments)
    try:
        args = parser.parse_args(arguments)
    except SystemExit as stop:  # argparse's way out, after --help or a usage error
        return stop.code if isinstance(stop.code, int) else ExitStatus.DONE
    if args.version:
        print(f"castore {__version__}")
        return ExitStatus.DONE
    if args.command is None:
        parser.print_help(sys.stderr)
        return ExitStatus.USAGE
    return load(args.command).run(args, Output(args.as_json))


def _say(text: str) -> None:
    print(printable(f"castore: {text}"), file=sys.stderr)


def _os_error_text(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{os.fsdecode(error.filename)}: {reason}" if error.filename else reason


def _open_closed_streams() -> None:
    """Make a stream that the shell has closed one to nowhere, as `>/dev/null` does.

    Python has None for it, which has no methods, and which `print` takes for stdout.
    """
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - as long-lived as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - as long-lived as the process


@contextlib.contextmanager
def _tolerant_streams() -> Iterator[None]:
    """Let no kernel text end the command because the terminal's encoding lacks a letter."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    yield


@contextlib.contextmanager
def _warnings_shown() -> Iterator[None]:
    """Print what the store warns of to stderr, one line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("castore: %(message)s"))
    handler.addFilter(_make_harmless)
    logger = logging.getLogger("castore")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _make_harmless(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage()), None
    return True


def _settle_stdout() -> None:
    """Keep the interpreter from failing once more when it flushes stdout at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, sys.stdout.fileno())
            os.close(devnull)
