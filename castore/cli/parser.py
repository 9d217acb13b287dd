"""The command line: which commands there are, and how each explains itself.

Every command is listed with one line of summary; only the modules of those that the
command line mentions are imported, so that `castore --help` stays quick.
"""

from __future__ import annotations

import argparse
import difflib
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar, cast

from castore.cli.status import MEANINGS, ExitStatus
from castore.cli.text import printable
from castore.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from castore.cli.output import Output

_T = TypeVar("_T")

COMMANDS = {
    "init": "make a store",
    "tune": "measure the schedules of kernels on this machine and store the best",
    "why": "tell whether a stored result applies here, and if not, why",
    "ls": "list refs",
    "show": "explain an object, such as a tuning result",
    "cat": "print an object as JSON",
    "put": "store a value, and print its id",
    "log": "list the changes of a ref",
    "restore": "let a ref name again what it named before",
    "topology": "describe this machine, or list those that the store knows",
    "stats": "count what is in the store",
    "fsck": "check every object and every ref",
    "repair": "mend what fsck finds",
    "pin": "protect objects from gc",
    "forget": "remove refs",
    "gc": "remove objects that nothing needs any more",
    "completion": "print a completion script for a shell",
}

_EPILOG = """\
The store is the folder that --store names, else CASTORE_DIR, else one in the
user's cache folder. CASTORE_ALTERNATES lists further stores to read.
Ids may be abbreviated to their first digits, at least 4 of them. CASTORE_TRUST
lists stores to use though others may write them (castore init --help).

examples:
  castore tune --all
  castore --store /srv/castore ls --namespace tuning
"""


@dataclass(frozen=True, slots=True)
class Help:
    """What a command says of itself.

    Attributes:
        description: What it does, and when it is safe; lines under 80 characters.
        examples: Command lines that work, at least two.
        statuses: The exit statuses that it has beside 1, 2 and 130.
        meanings: What a status means here, where that is more than its general meaning.
    """

    description: str
    examples: tuple[str, ...]
    statuses: tuple[ExitStatus, ...] = ()
    meanings: Mapping[ExitStatus, str] = field(default_factory=dict)

    @property
    def epilog(self) -> str:
        """The table of exit statuses, and the examples."""
        wanted = {
            ExitStatus.DONE,
            ExitStatus.FAILED,
            ExitStatus.USAGE,
            *self.statuses,
            *self.meanings,
        }
        statuses = status_table(wanted, self.meanings)
        return "\n".join([statuses, "", "examples:", *(f"  {line}" for line in self.examples)])


class Command(Protocol):
    """What the module of a command offers."""

    HELP: Help

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, args: argparse.Namespace, output: Output) -> int:
        """Do the work, and return the exit status."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors take one line, and name the help that helps.

    Inheriting is the only way that argparse offers to change that.
    """

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, and refuse what is left here: the parser above does not know the command."""
        parsed, left = super().parse_known_args(args, namespace)
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}")
        return parsed, left

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Refuse a value that is not among the choices, with what may have been meant."""
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        what = f"there is no {action.dest} {value!r}"
        near = difflib.get_close_matches(str(value), known, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise argparse.ArgumentError(None, f"{what}; {hint}")

    def error(self, message: str) -> NoReturn:
        """End the program with one line and the status for wrong usage."""
        line = printable(f"castore: {message}; see: {self.prog} --help")
        self.exit(ExitStatus.USAGE, f"{line}\n")


def load(command: str) -> Command:
    """Return the module of a command."""
    return cast("Command", import_module(f"castore.cli.{command}"))


def build(mentioned: Collection[str]) -> argparse.ArgumentParser:
    """Return the parser, in which the commands in `mentioned` know their arguments."""
    parser = Parser(
        prog="castore",
        description="Keep, find and check the results of kernel tuning.",
        epilog=f"{_EPILOG}\n{status_table(MEANINGS, {})}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    _add_common(parser, store=None, as_json=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, summary in COMMANDS.items():
        if name not in mentioned:
            commands.add_parser(name, help=summary)
            continue
        module = load(name)
        command = commands.add_parser(
            name,
            help=summary,
            description=module.HELP.description,
            epilog=module.HELP.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        # Accepted after the command as well; without a value there, the one before it counts.
        _add_common(command, store=argparse.SUPPRESS, as_json=argparse.SUPPRESS)
        module.configure(command)
    return parser


def _add_common(parser: argparse.ArgumentParser, *, store: str | None, as_json: bool | str) -> None:
    parser.add_argument("--store", metavar="DIR", default=store, help="the store's folder")
    parser.add_argument(
        "--json", dest="as_json", action="store_true", default=as_json, help="print JSON"
    )


def status_table(wanted: Collection[ExitStatus], meanings: Mapping[ExitStatus, str]) -> str:
    """Return the lines of help that explain these exit statuses."""
    return "\n".join(
        ["exit status:"]
        + [
            f"  {status.value:<3}  {meanings.get(status, MEANINGS[status])}"
            for status in sorted(wanted)
        ]
    )


def argument(parse: Callable[[str], _T]) -> Callable[[str], _T]:
    """Return `parse` as a type for argparse, which shows why a text was refused."""

    def parsed(text: str) -> _T:
        try:
            return parse(text)
        except MalformedError as error:
            raise argparse.ArgumentTypeError(error.reason) from None

    return parsed


def positive(text: str) -> int:
    """Return the whole number above 0 that `text` spells.

    Raises:
        MalformedError: It spells none, or one beyond a million.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 7 and 1 <= int(text) <= 10**6):
        raise MalformedError("number", f"expected a whole number from 1 to 1000000, got {text!r}")
    return int(text)


def natural(text: str) -> int:
    """Return the whole number from 0 to 2^63 - 1 that `text` spells.

    Raises:
        MalformedError: It spells none.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < 2**63):
        raise MalformedError("number", f"expected a whole number from 0 on, got {text!r}")
    return int(text)
