"""The errors of an implementation, which are results of a check or of a benchmark."""

from __future__ import annotations

from losscli.errors import UnfitError
from losscli.reasons import Code


class SubjectError(Exception):
    """An implementation raised, or returned what cannot be differentiated."""

    refused = False
    """Whether it raised RuntimeError, as PyTorch's own ops do for operands that do not fit."""
    code: Code = Code.RAISED

    def __init__(self, text: str, code: Code = Code.RAISED) -> None:
        """Take what is told of it, and its code where it raised nothing."""
        super().__init__(text)
        self.code = code


class NoSecondDerivativesError(SubjectError):
    """The gradients of an implementation cannot be differentiated, and it says so."""


class SandboxError(SubjectError):
    """The process of a file died, hangs or forges; ``code`` says which."""

    def __init__(self, code: Code, text: str) -> None:
        """``text`` says it to people."""
        super().__init__(text, code)
        self.log = ""
        """What the process wrote, where it never came to be asked."""
        self.reached: tuple[str, ...] = ()
        """The parts of the walls behind which it ran then."""


class NotIsolatedError(UnfitError):
    """A part of the isolation is missing where it is required; nothing of a file has run."""


class NotBuiltError(SandboxError):
    """A file cannot be imported, or what it compiles is not compiled."""

    def __init__(self, text: str, *, compiler: bool) -> None:
        """``compiler``: whether a compiler or linker failed."""
        super().__init__(Code.DOES_NOT_BUILD, text)
        self.compiler = compiler
