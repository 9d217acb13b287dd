"""What can go wrong while tuning, beside what the store itself reports."""

from __future__ import annotations

from castore.errors import CastoreError


class DeviceUnavailableError(CastoreError):
    """The device that was asked for cannot be used on this machine.

    Contrast `NothingAcceptableError`: there the device works and no candidate did.

    Attributes:
        device: The device's name, such as `wgpu`.
        reason: Why it cannot be used.
    """

    exit_status = 9

    def __init__(self, device: str, reason: str) -> None:
        self.device = device
        self.reason = reason
        super().__init__(device, reason)

    def __str__(self) -> str:
        return f"device {self.device} cannot be used: {self.reason}"


class NestedTuningError(CastoreError, RuntimeError):
    """Tuning was begun in a worker process.

    A worker imports the module that a candidate is written in. Where that module tunes when it
    is imported, each worker would start further ones, without end.
    """

    exit_status = 2

    def __str__(self) -> str:
        return (
            "tuning was begun in one of its own worker processes, which import the candidates' "
            'module; in that module, put the call under: if __name__ == "__main__":'
        )


class NothingAcceptableError(CastoreError):
    """Every candidate failed, so there is no result; no ref was changed.

    Attributes:
        kernel: The kernel text, such as `affine_f32[n=1048576]`.
        evaluated: How many candidates were tried.
        reasons: Reasons of failure with how often each occurred, most frequent first.
    """

    exit_status = 8

    def __init__(self, kernel: str, evaluated: int, reasons: tuple[tuple[str, int], ...]) -> None:
        self.kernel = kernel
        self.evaluated = evaluated
        self.reasons = reasons
        super().__init__(kernel, evaluated, reasons)

    def __str__(self) -> str:
        shown = "; ".join(
            f"{reason} ({count} times)" if count > 1 else reason
            for reason, count in self.reasons[:3]
        )
        several = f"none of {self.evaluated} candidates is acceptable"
        what = several if self.evaluated > 1 else "the only candidate is not acceptable"
        return f"{self.kernel}: {what}: {shown}"


class PackageMissingError(CastoreError, ImportError):
    """A package that an extra of castore installs is not there.

    Attributes:
        package: The package.
        extra: The extra.
    """

    exit_status = 9

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(package, extra)

    def __str__(self) -> str:
        return f"{self.package} is not installed; run: pip install 'castore[{self.extra}]'"


class SourceUnavailableError(CastoreError):
    """What a kernel runs cannot be read, so nobody can tell which result is of it.

    Attributes:
        function: The function, as `module:name`.
        reason: Why it cannot be read.
    """

    exit_status = 2

    def __init__(self, function: str, reason: str) -> None:
        self.function = function
        self.reason = reason
        super().__init__(function, reason)

    def __str__(self) -> str:
        return f"{self.function}: {self.reason}"


class KernelChangedError(CastoreError):
    """The kernel changed while it was measured; nothing was stored.

    Attributes:
        kernel: The kernel text.
        fields: What of the applicability record changed, such as `source`.
    """

    def __init__(self, kernel: str, fields: tuple[str, ...]) -> None:
        self.kernel = kernel
        self.fields = fields
        super().__init__(kernel, fields)

    def __str__(self) -> str:
        changed = ", ".join(self.fields)
        return f"{self.kernel}: {changed} changed while it was measured; nothing was stored"


class UnknownKernelError(CastoreError, KeyError):
    """No kernel of this id is built in.

    Attributes:
        kernel: The id that was asked for.
        known: The ids that there are.
    """

    exit_status = 3

    def __init__(self, kernel: str, known: tuple[str, ...]) -> None:
        self.kernel = kernel
        self.known = known
        super().__init__(kernel, known)

    def __str__(self) -> str:
        return f"there is no kernel {self.kernel!r}; known are {', '.join(self.known)}"
