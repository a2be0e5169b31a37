"""A verdict on one file: plain data, printed as a block or as JSON."""

from collections.abc import Mapping
from statistics import geometric_mean
from typing import ClassVar

import msgspec
from msgspec.structs import force_setattr, replace

from losscli import __version__
from losscli.errors import EXIT_BUILD, EXIT_FAILED, EXIT_OK, EXIT_UNFIT, EXIT_USAGE
from losscli.files.record import Record
from losscli.judge.job import Job
from losscli.judge.verdict_parts import (
    REFERENCE,
    RIGHT_WORDS,
    Accuracy,
    JudgeReason,
    Speed,
    mark,
    word_of,
)
from losscli.reasons import WORDS, Code, Facet, Word

MOST_REASONS = 3
"""More reasons would hide where to start."""
PASSES = {"forward": "Forward", "forward_backward": "Forward and backward"}


class Verdict(Record, frozen=True):
    """The verdict on one file."""

    derived: ClassVar = {
        "word": "verdict",
        "verdict": "correct",
        "against": "reference",
        "correct": "has_gradient",
        "has_gradient": "reward",
        "reasons": "feedback",
        "speed": "speedup",
    }

    id: str
    """The id of the job; the path where the job has none."""
    file: str
    """The file as it was named, with its revision and function."""
    word: Word
    against: str
    """What it is compared with: the name of a loss, ``Model``, or another file."""
    device: str
    reasons: tuple[JudgeReason, ...] = ()
    """Those for the word come first."""
    cause: str = ""
    """What its wrong results are: those of a known mistake, or the right ones times a number."""
    notes: tuple[str, ...] = ()
    """What was found out about how to judge it: which loss it computes, for example."""
    facets: dict[Facet, str] = msgspec.field(default_factory=dict)
    """The sides of the kernel, in a fixed order: each ``ok``, ``limited: how``, ``raises: how``,
    ``wrong: how`` or ``not tested: why``."""
    speed: tuple[Speed, ...] = ()
    accuracy: Accuracy = Accuracy()
    checks: dict[str, int] = msgspec.field(default_factory=dict)
    """How many checks passed, warned, failed and were skipped."""
    dtypes: tuple[str, ...] = ()
    """The dtypes in which it was judged: that of the times first, then others that it takes. Of
    these, small checks of value and gradients alone."""
    trains: bool | None = None
    """Whether it has a gradient; None where that was not reached."""
    isolation: tuple[str, ...] = ()
    """The parts of the walls that closed the worker in: ``session``, ``network`` and so on."""
    not_isolated: tuple[str, ...] = ()
    """The parts that this machine lacks; none where nothing of the file ran."""
    languages: tuple[str, ...] = ()
    """The languages inside Python that it imports, with their versions: ``Triton 3.6.0``."""
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    """How long each stage took, and ``tuning`` within them."""
    log: str = ""
    """The end of what it wrote."""
    sha256: str = ""
    """The digest of the source that was judged."""
    losscli: str = ""
    """The version that judged it."""
    torch: str = ""
    machine: str = ""
    """The model of the GPU that judged it; of the CPU where no GPU did."""
    host: str = ""
    """The CPU next to it, and its cores: ``AMD EPYC 9554, 64 cores``."""
    cached: bool = False
    """Whether it was found in the cache: the same source was judged in the same way before."""

    def __post_init__(self) -> None:
        """Put the reasons in order."""
        reasons = sorted(self.reasons, key=lambda reason: word_of([reason]) != self.word)
        force_setattr(self, "reasons", tuple(reasons))

    @property
    def feedback(self) -> str:
        """What to change, in sentences made for a model, or for a person, to act on."""
        opening = WORDS[self.word].opening
        if self.word == "RIGHT" and self.reasons:
            opening = "is right, but raises an error for some inputs."
        parts = [f"{self.file or self.id} {opening}"]
        parts += [reason.sentences(self.against) for reason in self.reasons[:MOST_REASONS]]
        if (more := len(self.reasons) - MOST_REASONS) > 0:
            reasons = "reason" if more == 1 else "reasons"
            parts.append(f"{more} more {reasons} may follow from these.")
        if self.accuracy.deterministic is False:
            parts.append("Its results differ from run to run.")
        for pass_, title in PASSES.items():
            if timed := [each for each in self.speed if each.pass_ == pass_]:
                parts.append(min(timed, key=_rank).sentences(title, len(timed)))
        if self.cause:
            parts.append(f"Its results are those of a mistake: {self.cause}.")
        return " ".join(parts)

    @property
    def verdict(self) -> Word:
        """One of the words, such as RIGHT; ``word`` is the former key of the JSON."""
        return self.word

    @property
    def reference(self) -> str:
        """What it is compared with; ``against`` is the former key of the JSON."""
        return self.against

    @property
    def correct(self) -> bool | None:
        """Whether what it computes is right; None where it was not judged."""
        if self.word == "NO KERNEL OF ITS OWN":
            return True
        return None if self.word == "NOT JUDGED" else self.right

    @property
    def has_gradient(self) -> bool | None:
        """Whether it has a gradient; None where that was not reached."""
        return self.trains

    @property
    def speedup(self) -> float | None:
        """The geometric mean of the ratios to the reference that samples decide; None without."""
        return speedup(self)

    @property
    def reward(self) -> float | None:
        """One number for a search, from 0 to 1; None where it was not judged.

        0 for what is not right; else half the mean of its tested facets (1 for ok, 0.75 where it
        raises, 0.5 where it is limited) and half s / (1 + s) of its speedup s, which counts as 1
        where samples decide nothing.
        """
        if not self.right:
            return None if self.correct is None else 0.0
        worth = {"ok": 1.0, "raises": 0.75, "limited": 0.5}
        kinds = [text.partition(":")[0] for text in self.facets.values()]
        known = [worth[kind] for kind in kinds if kind in worth]
        facets = sum(known) / len(known) if known else 1.0
        faster = self.speedup or 1.0
        return round(0.5 * facets + 0.5 * faster / (1 + faster), 4)

    @property
    def codes(self) -> set[Code]:
        """The codes of its reasons."""
        return {reason.code for reason in self.reasons}

    @property
    def right(self) -> bool:
        """Whether what it computes is right."""
        return self.word in RIGHT_WORDS

    @property
    def kind_of_machine(self) -> str:
        """The machine and its host; ratios of two kinds cannot be compared."""
        beside = "" if self.host.startswith(self.machine) else f"{self.machine}, host "
        return f"{beside}{self.host}" if self.host else self.machine

    @property
    def exit_code(self) -> int:
        """The exit code of ``losscli judge`` for this file alone."""
        if self.right:
            return EXIT_OK
        if Code.UNKNOWN_LOSS in self.codes:
            return EXIT_USAGE
        known = {"DOES NOT BUILD": EXIT_BUILD, "NOT JUDGED": EXIT_UNFIT}
        return known.get(self.word, EXIT_FAILED)


def _rank(timed: Speed) -> float:
    ratio = timed.ratios.get(REFERENCE)
    return ratio[0] if ratio else -timed.seconds


def not_judged(job: Job, code: Code, text: str, *, log: str = "") -> Verdict:
    """Return the verdict NOT JUDGED on a job."""
    return Verdict(
        id=job.id,
        file=job.file,
        word="NOT JUDGED",
        against=job.loss or job.reference,
        device=job.device,
        reasons=(JudgeReason(code, "parse", text),),
        log=log,
        losscli=__version__,
    )


def renamed(verdict: Verdict, job: Job, names: Mapping[str, str]) -> Verdict:
    """Return a verdict with a job's id and file, and with other file names in its texts."""

    def put(text: str) -> str:
        for old, new in names.items():
            text = text.replace(old, new)
        return text

    reasons = tuple(
        replace(each, text=put(each.text), case=put(each.case), repeat=put(each.repeat))
        for each in verdict.reasons
    )
    texts = {"against": put(verdict.against), "log": put(verdict.log), "reasons": reasons}
    return replace(verdict, id=job.id, file=job.file, **texts)


def speedup(verdict: Verdict, pass_: str = "") -> float | None:
    """Return the geometric mean of the conclusive ratios to the reference, if any."""
    timed = (each.ratios.get(REFERENCE) for each in verdict.speed if pass_ in ("", each.pass_))
    ratios = [ratio[0] for ratio in timed if ratio and mark(*ratio[1:]) != "?"]
    return geometric_mean(ratios) if ratios else None


def score(verdict: Verdict) -> float:
    """Return a number for a search: 0 if not right, else the speedup, or 1 if not timed."""
    return (verdict.speedup or 1.0) if verdict.right else 0.0
