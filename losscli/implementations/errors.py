"""The errors of implementations, which checks and benchmarks report as results."""

from losscli.errors import UnfitError
from losscli.reasons import Code


class SubjectError(Exception):
    """An implementation raised, or returned something that cannot be differentiated."""

    def __init__(self, text: str, code: Code = Code.RAISED, *, refused: bool = False) -> None:
        """``refused``: it raised RuntimeError, as PyTorch's operators do for invalid operands."""
        super().__init__(text)
        self.code, self.refused = code, refused


class NoSecondDerivativesError(SubjectError):
    """An implementation reports that its gradients cannot be differentiated."""


class SandboxError(SubjectError):
    """The worker of a file died, hung or forged a message; ``code`` says which."""

    log = ""
    """The worker's output, if it ended before the first request."""
    reached: tuple[str, ...] = ()
    """The isolation it ran under."""


class NotIsolatedError(UnfitError):
    """A required part of the isolation is missing; the file has not run."""

    code: Code = Code.NOT_ISOLATED


class NotBuiltError(SandboxError):
    """A file cannot be imported or compiled."""

    def __init__(self, text: str, *, compiler: bool) -> None:
        """``compiler``: whether a compiler or linker failed."""
        super().__init__(text, Code.DOES_NOT_BUILD)
        self.compiler = compiler
