"""The errors that a user can cause: one short message and an exit code each.

LosscliError                 1
|-- UsageError               2   command line, arguments
|   `-- ConfigError          2   YAML, with file:line:column
|       `-- ConfigErrors     2   several of them
|-- RankError                1   a rank died, hangs or did not do what the others did
|-- BuildError               3   a compiler said no
`-- UnfitError               4   no GPU, no compiler, no memory, nowhere to write
    `-- PatchError           4   a library that losscli.patch does not know
"""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_BUILD = 3
EXIT_UNFIT = 4
EXIT_UNEXPECTED = 70
"""The exit code of sysexits.h for an internal error; 1 would mean that a check failed."""
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class LosscliError(Exception):
    """The base of all: the message says what was expected and given, and what to do."""

    exit_code = EXIT_FAILED


class UsageError(LosscliError):
    """The command line or an argument makes no sense."""

    exit_code = EXIT_USAGE


class ConfigError(UsageError):
    """A config file is wrong; the message starts with ``file:line:column:`` where known."""

    def __init__(
        self, message: str, *, file: str = "", line: int | None = None, column: int | None = None
    ) -> None:
        """Lines and columns count from 1."""
        self.message, self.file, self.line, self.column = message, file, line, column
        where = ":".join(str(part) for part in (file, line, column) if part not in ("", None))
        super().__init__(f"{where}: {message}" if where else message)
        self.errors: tuple[ConfigError, ...] = (self,)
        """Those of :class:`ConfigErrors`."""


class ConfigErrors(ConfigError):  # noqa: N818
    """Several errors of a config."""

    def __init__(self, errors: Iterable[ConfigError]) -> None:
        several = sorted(errors, key=lambda e: (e.file, e.line or 0, e.column or 0))
        first = several[0]
        super().__init__(first.message, file=first.file, line=first.line, column=first.column)
        self.errors = tuple(several)
        title = f"{len(self.errors)} errors, which `losscli config check` shows in their lines:"
        self.args = ("\n".join([title, *map(str, self.errors)]),)


class RankError(LosscliError):
    """One of several ranks died, hangs, or did not do what the others did."""

    def __init__(self, message: str, *, is_told: bool = False) -> None:
        """``is_told``: another rank says it to the user."""
        super().__init__(message)
        self.is_told = is_told


class BuildError(LosscliError):
    """A compiler or linker failed."""

    exit_code = EXIT_BUILD


class UnfitError(LosscliError):
    """This environment cannot do what was asked."""

    exit_code = EXIT_UNFIT


class NoGPUError(UnfitError):
    """A GPU is asked for that is not there."""


class PatchError(UnfitError):
    """A library is not installed, or in a version whose losses losscli does not know."""


@contextmanager
def writing(path: Path, advice: str = "Name another file.", do: str = "write") -> Iterator[None]:
    """Turn an error of writing a path, or doing ``do``, into UnfitError, but for a broken pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnfitError(f"cannot {do} {path}: {error.strerror}. {advice}") from None


def worst(codes: Iterable[int]) -> int:
    """Return the exit code of several files."""
    order = EXIT_FAILED, EXIT_BUILD, EXIT_USAGE, EXIT_UNFIT
    return min({*codes} & {*order}, key=order.index, default=EXIT_OK)


LISTED = {"loss": "losses", "check": "checks"}
"""What ``losscli list`` shows of a kind of names."""
MOST_NAMES = 16
"""As many fit into a message of three lines."""
_SYNONYMS = {
    **dict.fromkeys(("fp32", "f32", "float", "single"), "float32"),
    **dict.fromkeys(("fp64", "f64", "double"), "float64"),
    **dict.fromkeys(("fp16", "f16", "half"), "float16"),
    **dict.fromkeys(("bf16", "bfloat"), "bfloat16"),
}
"""Names of dtypes in other projects."""


def unknown(kind: str, given: str, candidates: Iterable[str]) -> str:
    """Return ``unknown KIND 'GIVEN'. Did you mean '...'? Choose from: ..., ....``."""
    names = list(candidates)
    synonym = _SYNONYMS.get(given.lower())
    close = [synonym] if synonym in names else difflib.get_close_matches(given, names, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    said = f"unknown {kind} '{given}'.{hint}"
    if kind in LISTED and len(names) > MOST_NAMES:
        return f"{said} `losscli list {LISTED[kind]}` shows them."
    return f"{said} Choose from: {', '.join(names)}."


def printable(text: str) -> str:
    """Escape control characters, which a terminal would obey, but not ends of lines."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """Escape ends of lines and tabs, too."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def first_line(error: BaseException) -> str:
    """Return an exception's first line."""
    return text_of(error).strip().partition("\n")[0]


def text_of(error: BaseException) -> str:
    """Return an exception's text, even if that raises another."""
    try:
        return str(error)
    except Exception:
        return ""
