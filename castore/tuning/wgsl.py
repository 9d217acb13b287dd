"""Kernels written as WGSL templates.

A template holds `${name}` for sizes, knobs and names derived from them. Knobs that
WGSL lets be set late (workgroup sizes, workgroup arrays) may be override constants
instead. Launch sizes are expressions, so that the whole implementation is text and
its digest covers all that decides what runs.
"""

from __future__ import annotations

import re
import string
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from blake3 import blake3

from castore.errors import MalformedError
from castore.format.canonical import encode
from castore.format.value import Value
from castore.tuning.checks import check_name
from castore.tuning.expression import evaluate
from castore.tuning.program import GUARD_BYTES, ArraySpec, Binding, WgslProgram

if TYPE_CHECKING:
    from collections.abc import Mapping

    from castore.tuning.kernel import Kernel
    from castore.tuning.space import Schedule, ScheduleSpace


_COMMENT = re.compile(r"//.*|/\*[\s\S]*?\*/")
_declares_uniform = re.compile(r"\bvar\s*<\s*uniform\s*>").search


@dataclass(frozen=True, slots=True)
class WgslImplementation:
    """How WebGPU devices compute a kernel.

    The arrays are bound in group 0 in the order of the signature, inputs first. The output's
    binding is `GUARD_BYTES` longer than the output, so a shader takes sizes from the template
    and never from `arrayLength`.

    Attributes:
        template: WGSL with `${name}` where a size, knob or derived name belongs.
        space: The schedules.
        workgroup: Expressions for the workgroup size, by dimension.
        dispatch: Expressions for the number of workgroups, by dimension.
        workgroup_bytes: Expression for the workgroup memory that the template declares.
        overrides: Names that the template declares as override constants.
        derived: Further names with their expressions.
        uniforms: Inputs that are bound as uniforms.
        entry_point: The function to run.
    """

    template: str
    space: ScheduleSpace
    workgroup: tuple[str, str, str]
    dispatch: tuple[str, str, str]
    workgroup_bytes: str = "0"
    overrides: tuple[str, ...] = ()
    derived: Mapping[str, str] = field(default_factory=dict)
    uniforms: tuple[str, ...] = ()
    entry_point: str = "main"

    def __post_init__(self) -> None:
        """Refuse names with two meanings, and launch sizes that are no three expressions.

        Raises:
            MalformedError: A derived name is a knob's too, a dimension is missing, a knob is not
                used, or a uniform is declared and not named.
        """
        for name in self.derived:
            check_name(".derived", name)
            if name in self.space.names:
                raise MalformedError(f".derived.{name}", "there is a knob of that name")
        for field_name, texts in (("workgroup", self.workgroup), ("dispatch", self.dispatch)):
            if type(texts) is not tuple or [type(text) for text in texts] != [str] * 3:
                reason = "expected a tuple of three expressions as text"
                raise MalformedError(f".{field_name}", f'{reason}, ("64", "1", "1") for one')

        for field_name, names in (("overrides", self.overrides), ("uniforms", self.uniforms)):
            if type(names) is not tuple:
                raise MalformedError(f".{field_name}", f"expected a tuple of names, got {names!r}")
        if not self.uniforms and _declares_uniform(_COMMENT.sub("", self.template)):
            reason = "the template declares var<uniform>: name the inputs that are bound so"
            raise MalformedError(".uniforms", reason)
        unused = sorted(self.space.names - self._used())
        if unused:
            raise MalformedError(
                f".knobs.{unused[0]}", "neither the template nor any expression uses it"
            )

    def _used(self) -> set[str]:
        """Return the names that decide about anything, and words that are none."""
        expressions = (
            *(*self.workgroup, *self.dispatch, self.workgroup_bytes),
            *(*self.derived.values(), *self.space.constraints),
        )
        words = re.findall(r"\w+", " ".join(map(str, expressions)))
        return {*words, *self.overrides, *string.Template(self.template).get_identifiers()}

    @property
    def names(self) -> frozenset[str]:
        """The knobs and the derived names."""
        return self.space.names | self.derived.keys()

    def source_digest(self) -> str:
        """Return the BLAKE3 of the template and of every expression that goes with it."""
        derived: dict[str, Value] = dict(self.derived)
        source: dict[str, Value] = {
            "template": _normalised(self.template),
            "workgroup": list[Value](self.workgroup),
            "dispatch": list[Value](self.dispatch),
            "workgroup_bytes": self.workgroup_bytes,
            "overrides": list[Value](sorted(self.overrides)),
            "derived": derived,
            "uniforms": list[Value](sorted(self.uniforms)),
            "entry_point": self.entry_point,
        }
        return blake3(encode(source)).hexdigest()

    def program(self, kernel: Kernel, schedule: Schedule) -> WgslProgram:
        """Return the complete shader and its launch.

        Raises:
            MalformedError: The template names something unknown, or an expression is wrong.
        """
        names = {**kernel.sizes, **schedule}
        names |= {name: evaluate(text, names) for name, text in sorted(self.derived.items())}
        unknown = [name for name in self.overrides if name not in names]
        if unknown:
            raise MalformedError(".overrides", f"{', '.join(unknown)}: {_known(names)}")
        workgroup = [evaluate(text, names) for text in self.workgroup]
        dispatch = [evaluate(text, names) for text in self.dispatch]
        return WgslProgram(
            source=_filled(self.template, names),
            entry_point=self.entry_point,
            constants=tuple((name, names[name]) for name in sorted(self.overrides)),
            bindings=self._bindings(kernel),
            workgroup=(workgroup[0], workgroup[1], workgroup[2]),
            dispatch=(dispatch[0], dispatch[1], dispatch[2]),
            workgroup_bytes=evaluate(self.workgroup_bytes, names),
        )

    def _bindings(self, kernel: Kernel) -> tuple[Binding, ...]:
        signature = kernel.arrays
        known = [spec.name for spec in signature.inputs]
        unknown = [name for name in self.uniforms if name not in known]
        if unknown:
            raise MalformedError(
                ".uniforms", f"{', '.join(unknown)}: inputs are {', '.join(known)}"
            )
        inputs = [
            Binding(spec.name, self._access(spec), spec.size_bytes) for spec in signature.inputs
        ]
        output = signature.output
        return (*inputs, Binding(output.name, "write", output.size_bytes + GUARD_BYTES))

    def _access(self, spec: ArraySpec) -> str:
        return "uniform" if spec.name in self.uniforms else "read"


def _normalised(template: str) -> str:
    # Where the text stands in a file (indentation, line ends) is not what it says.
    lines = "\n".join(line.rstrip() for line in template.splitlines())
    return textwrap.dedent(lines).strip()


def _filled(template: str, names: Mapping[str, int]) -> str:
    try:
        return string.Template(_normalised(template)).substitute(names)
    except KeyError as error:
        unknown = f"${{{error.args[0]}}}"
        raise MalformedError(
            ".template", f"cannot be filled in: {unknown} is not known; {_known(names)}"
        ) from None
    except ValueError as error:
        reason = f"cannot be filled in: {error}; a $ begins a name, as in ${{name}}"
        raise MalformedError(".template", reason) from None


def _known(names: Mapping[str, int]) -> str:
    return f"sizes, knobs and derived names are {', '.join(sorted(names))}"
