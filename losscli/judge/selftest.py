"""The judge's self-test: files with a known verdict, wrong ones and legitimate ones.

A file begins with ``# expect: WORD[|WORD] [code[,code]]: what it is``: a word of a verdict and
codes of its reasons. Alternatives are for what may legitimately be noticed first. Lines of options
follow:

- ``# loss: NAME``: the loss it is judged against, else smooth_l1;
- ``# reference: Model``: judge it against its own Model;
- ``# dtypes: NAME, NAME``: judge these, else each that it takes;
- ``# limits: NAME=NUMBER ...``: change these limits;
- ``# gpu``: needs CUDA;
- ``# needs: MODULE``: needs a package that is not losscli's.

Files import what they share from modules of the folder ``bases``. Short files that differ in a few
lines are a base and a change in ``changes.yaml``: ``bases`` has texts with the words IMPORTS, SETUP
and BODY on lines of their own; each base lists its changes by file name. A change has the options
above, ``imports`` (names of modules, or whole statements), ``setup`` (above the function) and
``body``.
"""

import atexit
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent
from typing import Any, ClassVar, Self

import msgspec
import yaml

from losscli.errors import EXIT_FAILED, EXIT_OK, EXIT_UNFIT
from losscli.files.reading import shipped
from losscli.files.record import Record
from losscli.implementations.allowance import Allowance
from losscli.judge.job import Job
from losscli.judge.verdict import Verdict
from losscli.judge.verdict_parts import RIGHT_WORDS
from losscli.reasons import Code
from losscli.runs.grouping import grouped

_FIRST_LINE = re.compile(
    r"# expect: (?P<words>[A-Z]+(?:[ |][A-Z]+)*)"
    r"(?: (?P<codes>[a-z_]+(?:,[a-z_]+)*))?: (?P<what>\S.*)"
)
_OPTIONS = ("gpu", "needs", "loss", "reference", "dtypes", "limits")
_OPTION = re.compile(rf"# (?P<name>{'|'.join(_OPTIONS)})(?:: (?P<value>\S.*))?")
_PLACE = re.compile(r"^( *)(IMPORTS|SETUP|BODY)\n", re.MULTILINE)
_LIMITS = {"build_seconds": 300.0, "call_seconds": 60.0, "total_seconds": 600.0}
OF_TIME = {Code.WRONG_AFTER_WARM_UP, Code.TIMING_TAMPERING, Code.INTERFERENCE, Code.SLOWER}
"""Codes that only timing finds. Other candidates are not timed, which takes seconds each."""
OF_MACHINE = {
    *(Code.NO_GPU, Code.INSUFFICIENT_MEMORY, Code.DEVICE_UNHEALTHY),
    *(Code.INTERRUPTED, Code.BUSY),
}
"""Codes of what this machine lacks."""
TIMED = {"legitimate_fused_cpp", "legitimate_model_new_cuda"}
LEGITIMATE = "legitimate"
_KINDS: dict[str, tuple[Code, ...]] = {
    "functions replaced, results faked": (Code.MONKEY_PATCHED, Code.WROTE_TO_CHANNEL),
    "memoized results": (Code.WRONG_AFTER_WARM_UP,),
    "times that disagree with the clock": (Code.TIMING_TAMPERING, Code.INTERFERENCE),
    "processes, flags and files that remain": (Code.GLOBAL_STATE_LEAK, Code.LEFT_PROCESS),
    "wrong values or gradients": (
        *(Code.WRONG, Code.SHAPE_OR_DTYPE_MISMATCH, Code.MODIFIED_INPUT),
        *(Code.NO_GRADIENT, Code.KNOWN_LIMITATION),
    ),
    "ends, hangs or takes too much": (
        *(Code.PROCESS_DIED, Code.DEVICE_ERROR, Code.FLOODED_OUTPUT),
        *(Code.MEMORY_LIMIT, Code.RAISED, Code.TIMEOUT),
    ),
    "cannot be loaded": tuple(code for code in Code if code.word == "DOES NOT BUILD"),
    "a wrong reference": (Code.BAD_REFERENCE,),
}
"""Kinds of candidates, by the codes of their reasons; the first kind counts."""


@dataclass(frozen=True)
class Candidate:
    """A file, and what its first lines declare."""

    path: Path
    words: tuple[str, ...]
    codes: tuple[str, ...]
    what: str
    options: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the first lines; ValueError where they are invalid."""
        first, *others = path.read_text(encoding="utf-8").splitlines()
        found = _FIRST_LINE.fullmatch(first)
        if not found:
            raise ValueError(f"{path}: the first line is {first!r}")
        declared = takewhile(bool, map(_OPTION.fullmatch, others))
        options = {option["name"]: option["value"] or "" for option in declared if option}
        codes = tuple(found["codes"].split(",")) if found["codes"] else ()
        return cls(path, tuple(found["words"].split("|")), codes, found["what"], options)

    @property
    def missing(self) -> str:
        """The package that it needs and that is not installed; empty if none."""
        module = self.options.get("needs", "")
        return module if module and find_spec(module) is None else ""

    @property
    def needs_gpu(self) -> bool:
        """Whether it can only be judged on a GPU; all others are judged on the CPU."""
        return "gpu" in self.options

    @property
    def kind(self) -> str:
        """The kind of file that it is an example of."""
        if {*self.words} <= {*RIGHT_WORDS}:
            return LEGITIMATE
        return next(kind for kind, codes in _KINDS.items() if {*codes} & {*self.codes})

    def job(self, gpu: str = "cuda:0") -> Job:
        """Return its job of ``losscli judge --quick``, on ``gpu`` if it needs one."""
        given = dict(each.split("=") for each in self.options.get("limits", "").split())
        dtypes: Any = tuple(filter(None, self.options.get("dtypes", "").split(", ")))
        return Job(
            file=str(self.path),
            loss="" if "reference" in self.options else self.options.get("loss", "smooth_l1"),
            device=gpu if self.needs_gpu else "cpu",
            dtypes=dtypes,
            quick=True,
            timed=bool(OF_TIME & {*self.codes}) or self.path.stem in TIMED,
            limits=msgspec.convert(_LIMITS | given, Allowance, strict=False),
        )

    def is_due(self, verdict: Verdict) -> bool:
        """Tell whether a verdict is as expected; a right file may meet errors of PyTorch's own."""
        words = {*self.words, *(("SAME ERROR AS PYTORCH",) if "RIGHT" in self.words else ())}
        return verdict.word in words and (not self.codes or bool(verdict.codes & {*self.codes}))


class Judged(Record, frozen=True):
    """The verdict on one file, next to the expected one."""

    derived: ClassVar = {"word": "verdict"}

    file: str
    kind: str
    what: str
    expected: str
    word: str
    codes: tuple[str, ...]
    reason: str
    """The text of the first reason, where the verdict is not as expected."""
    as_expected: bool
    seconds: float
    cause: str = ""
    """Why its results are wrong, or what it does instead, where the judge found out."""

    @property
    def verdict(self) -> str:
        """The verdict; ``word`` is the former key of the JSON."""
        return self.word

    @property
    def exit_code(self) -> int:
        """The exit code of the self-test for this file; 4 where the machine lacks something."""
        if self.as_expected:
            return EXIT_OK
        return EXIT_UNFIT if {*self.codes} & OF_MACHINE else EXIT_FAILED


def changed(changes: str) -> dict[str, str]:
    """Return the text of each file of ``changes.yaml``, by name."""
    known = yaml.safe_load(changes)
    return {
        name: _text(text, change)
        for base, text in known.pop("bases").items()
        for name, change in known[base].items()
    }


def _text(base: str, change: dict[str, Any]) -> str:
    if unknown := change.keys() - {"expect", *_OPTIONS, "imports", "setup", "body"}:
        raise ValueError(f"changes.yaml: {', '.join(unknown)}: no such key")
    imports = (each if " " in each else f"import {each}" for each in change.get("imports", ()))
    parts = {"setup": "", "body": "", **change, "imports": "\n".join(imports)}
    head = (
        f"# {option}" if change[option] is True else f"# {option}: {change[option]}"
        for option in ("expect", *_OPTIONS)
        if option in change
    )
    text = _PLACE.sub(lambda at: indent(parts[at[2].lower()].rstrip() + "\n", at[1]), base)
    return "\n".join([*head, text])


@cache
def root() -> Path:
    """Return the folder with all files, those of ``changes.yaml`` included."""
    folder = TemporaryDirectory(prefix="losscli-candidates-")
    atexit.register(folder.cleanup)
    source = shipped("the files to be judged", "candidates", "tests/candidates")
    shutil.copytree(source, folder.name, dirs_exist_ok=True)
    changes = (source / "changes.yaml").read_text(encoding="utf-8")
    for name, text in changed(changes).items():
        Path(folder.name, f"{name}.py").write_text(text, encoding="utf-8")
    return Path(folder.name)


def candidates(device: str) -> list[Candidate]:
    """Return the files that a device can judge, by name."""
    found = map(Candidate.read, sorted(root().glob("*.py")))
    return [each for each in found if not each.missing and (device != "cpu" or not each.needs_gpu)]


def judged_files(judged: Iterable[Verdict], of: Iterable[Candidate]) -> Iterator[Judged]:
    """Yield the outcome of each verdict for its file."""
    by_file = {str(each.path): each for each in of}
    for verdict in judged:
        candidate = by_file[verdict.file]
        due = candidate.is_due(verdict)
        reason = verdict.reasons[0].text if verdict.reasons else ""
        told = "" if verdict.right or " ulp" in reason else reason
        yield Judged(
            candidate.path.name,
            candidate.kind,
            candidate.what,
            " or ".join(candidate.words),
            verdict.word,
            tuple(dict.fromkeys(each.code for each in verdict.reasons)),
            "" if due else reason,
            due,
            round(sum(verdict.seconds.values()), 1),
            verdict.cause or told,
        )


def counted(found: Iterable[Judged]) -> dict[str, tuple[int, int, int]]:
    """Count the files of each kind, those with the expected verdict and those with a cause."""
    by_kind = grouped(found, lambda each: each.kind)
    return {
        kind: (len(own), sum(each.as_expected for each in own), sum(bool(o.cause) for o in own))
        for kind in (LEGITIMATE, *_KINDS)
        if (own := by_kind.get(kind))
    }
