"""A candidate that is judged: its file, what it is judged against, and its verdict so far."""

import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NoReturn

from losscli.cases.case import Case
from losscli.config.check_names import FACET_OF
from losscli.implementations.implementation import Implementation
from losscli.implementations.source import Source
from losscli.judge.against_loss import KnownLoss
from losscli.judge.against_model import AnyModel
from losscli.judge.job import Job
from losscli.judge.verdict_parts import RIGHT_WORDS, Accuracy, JudgeReason, Speed, Stage, word_of
from losscli.reasons import FACETS, HOME, Code, Facet
from losscli.runs.records import FAIL, PASS, SKIPPED, WARN, VerifyResult
from losscli.truth.problem import Problem
from losscli.truth.setup import ThirdParty
from losscli.verify.repeating import line

Against = KnownLoss | AnyModel

RENAMED = {Code.HANGS: Code.TIMEOUT, Code.DOES_NOT_BUILD: Code.BUILD_FAILED, Code.NONE: Code.WRONG}
"""The codes of results that have another name in a verdict."""
_KINDS: dict[Code, str] = {
    Code.KNOWN_LIMITATION: "limited: ",
    Code.UNSUPPORTED_INPUT: "raises: ",
    Code.SAME_ERROR_AS_PYTORCH: "",
    Code.SLOWER: "",
}
_OF_GRADIENTS: tuple[Facet, ...] = ("gradient", "repeated_backward", "second_derivatives")


class Ended(Exception):  # noqa: N818 - the verdict is known
    """A stage has found a reason to end the judging."""


@dataclass
class Draft:
    """A verdict that stages fill."""

    reasons: list[JudgeReason] = field(default_factory=list)
    checks: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    speed: list[Speed] = field(default_factory=list)
    accuracy: Accuracy = field(default_factory=Accuracy)
    trains: bool | None = None
    isolation: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    dtypes: dict[str, None] = field(default_factory=dict)
    cases: list[Case] = field(default_factory=list)
    cause: str = ""
    notes: list[str] = field(default_factory=list)
    tested: dict[Facet, None] = field(default_factory=dict)
    home: Collection[Facet] = HOME
    """The facets in which a wrong result is WRONG."""
    now: Stage = "parse"

    def facets(self, device: str, *, quick: bool) -> dict[Facet, str]:
        """Return each facet's ``ok``, ``limited: how``, ``raises: how`` or ``not tested: why``."""
        why = "judging ended before" if self.failures else "--quick" if quick else "nothing applies"
        reasons: dict[Facet, str] = {}
        if device == "cpu":
            reasons["streams_and_graphs"] = "needs a GPU"
        if self.trains is False:
            reasons |= dict.fromkeys(_OF_GRADIENTS, "it has no gradient")
        found: dict[Facet, str] = {}
        for facet in FACETS if self.tested else ():
            own = [reason for reason in self.reasons if reason.facet == facet]
            if own:
                worst = min(own, key=lambda reason: [*Code].index(reason.code))
                kind = _KINDS.get(worst.code, "wrong: ")
                found[facet] = kind + worst.text.removeprefix("raised ") if kind else "ok"
            elif facet in self.tested:
                found[facet] = "ok"
            else:
                found[facet] = f"not tested: {reasons.get(facet, why)}"
        return found

    @property
    def failures(self) -> list[JudgeReason]:
        """The reasons why it is not right; a misfit is mended and does not count."""
        counted = (each for each in self.reasons if each.code != Code.SHAPE_OR_DTYPE_MISMATCH)
        return [each for each in counted if word_of([each]) not in RIGHT_WORDS]

    @contextlib.contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        """Time a stage."""
        self.now, start = name, time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - start, 3)

    def add(self, code: Code, text: str, **more: Any) -> None:
        """Add a reason; ``more`` are its other fields."""
        self.reasons.append(JudgeReason(RENAMED.get(code, code), self.now, text, **more))

    def add_first(self, code: Code, text: str, *, check: str, facet: Facet, case: str) -> None:
        """Add a reason unless its check and facet have one of this code."""
        key = code, check, facet
        if not any((each.code, each.check, each.facet) == key for each in self.reasons):
            self.add(code, text, check=check, facet=facet, case=case)

    def end(self, code: Code, text: str, **more: Any) -> NoReturn:
        """Add the reason that ends the judging; raises Ended."""
        self.add(code, text, **more)
        raise Ended


@dataclass
class Judgement:
    """What the stages of a job read and change."""

    job: Job
    device: str
    file: Source
    against: Against
    draft: Draft
    notify: Callable[[str], None]
    waited: float = 0.0

    def __post_init__(self) -> None:
        self.over = time.monotonic() + self.job.limits.total_seconds

    @property
    def implementation(self) -> Implementation:
        """The candidate, with what is known of it so far."""
        return self.against.candidate

    def problem(self, case: Case, *, labels: bool = False) -> Problem:
        """Return the problem of a case for a third-party kernel; ``labels``: with labels alone."""
        setting = self.implementation.setting
        own = ThirdParty(setting.lacking, self.against.reference, labels or setting.labels)
        return Problem.of(case, third_party=own)

    def count(self, result: VerifyResult) -> None:
        """Add a result of a check to the draft."""
        draft, status = self.draft, result.status
        if not result.shrunk_from:
            draft.checks[status] = draft.checks.get(status, 0) + 1
        optional = result.case.dtype in self.against.others
        facet = _facet_of(result, self.against)
        if status != SKIPPED:
            draft.tested[facet] = None
        if not optional:  # its units cannot be compared
            draft.accuracy = _worst(draft.accuracy, result)
        mild = status == WARN and result.code == Code.SAME_ERROR_AS_PYTORCH and not optional
        if status != FAIL and not mild:
            return
        code = code_of(result, draft.now, facet, draft.home, optional=optional)
        if code == Code.WRONG:
            draft.cases = sorted([*draft.cases, result.case], key=lambda case: case.elements)
        place = result.check, result.case.name, line(result, self.job.call), facet
        of_dtype = f"operands of {result.case.dtype}: " if facet == "dtypes" else ""
        reason = JudgeReason(code, draft.now, of_dtype + result.told, *place)
        key = attrgetter("check", "code", "facet")
        known = [each for each in draft.reasons if key(each) == key(reason)]
        if result.shrunk_from and known:
            draft.reasons[draft.reasons.index(known[0])] = reason
        elif not known:
            draft.reasons.append(reason)

    def check_time(self) -> None:
        """End the judging when its time is over, without blaming the file for waits."""
        late = time.monotonic() - self.over
        told = f"judging took more than {self.job.limits.total_seconds:g} s"
        if late > self.waited:
            self.draft.end(Code.TIMEOUT, told)
        if late > 0:
            told += f", {self.waited:.0f} s of which it waited for {self.device}"
            self.draft.end(Code.BUSY, told)


def _facet_of(result: VerifyResult, against: Against) -> Facet:
    case = result.case
    facet = FACET_OF.get(result.check, "gradient")
    if result.code == Code.MODIFIED_INPUT:
        return "inputs"
    if facet not in ("value", "gradient"):
        return facet
    if isinstance(against, KnownLoss) and against.one_size not in (None, case.shape):
        return "sizes"  # some checks have sizes of their own
    if result.code == Code.KNOWN_LIMITATION:
        return "extreme_values"
    if case.dtype in against.others:
        return "dtypes"
    if _is_unusual(case):
        return "parameters"
    if against.usual_reductions and case.reduction not in against.usual_reductions:
        return "reductions"
    for each in case.spec.parameters:
        usual = each.default, each.absent, against.parameters.get(each.name)
        if case.params[each.name] not in usual:
            return "parameters"
    return facet


def code_of(
    result: VerifyResult,
    stage: Stage,
    facet: Facet = "value",
    home: Collection[Facet] = HOME,
    *,
    optional: bool = False,
) -> Code:
    """Return the reason's code for a result that did not pass; ``home``: the facets of WRONG."""
    code = RENAMED.get(result.code, result.code)
    if code == Code.NO_GRADIENT:
        # The target's, or of new operands; backward raises where no row counts.
        code = Code.WRONG if facet in ("value", "gradient") else Code.RAISED
    has_to = result.check.endswith(("value", "gradients", "_gradient")) and not optional
    raised = code in (Code.RAISED, Code.BUILD_FAILED)
    if raised and stage == "checks" and not has_to:
        return Code.UNSUPPORTED_INPUT
    of_other_rows = code == Code.SHAPE_OR_DTYPE_MISMATCH and facet == "layouts"
    if code == Code.MODIFIED_INPUT or of_other_rows or (code == Code.WRONG and facet not in home):
        return Code.KNOWN_LIMITATION
    if not _is_unusual(result.case):
        return code
    # An assertion is how PyTorch's operators raise an error on a GPU.
    asserted = code == Code.DEVICE_ERROR and "device-side assert" in result.reason
    if asserted or code == Code.RAISED:
        return Code.UNSUPPORTED_INPUT
    return Code.KNOWN_LIMITATION if code == Code.WRONG else code


def _is_unusual(case: Case) -> bool:
    """Tell whether a parameter has a value at which a formula may differ, or give NaN."""
    return any(each.is_unusual(case.params[each.name]) for each in case.spec.parameters)


def _worst(known: Accuracy, result: VerifyResult) -> Accuracy:
    """Return the largest errors of passed results so far, and whether runs agree."""
    if result.status == FAIL or result.code == Code.SAME_ERROR_AS_PYTORCH:
        return known
    own, torchs, same = result.error, result.reference_error, known.deterministic

    def most(*errors: float | None) -> float | None:
        return max((e for e in errors if e is not None and math.isfinite(e)), default=None)

    if result.check == "determinism" and result.status in (PASS, WARN):
        same = result.status == PASS and same is not False
    return Accuracy(
        most(known.value_ulp, own.value_ulp),
        most(known.torch_value_ulp, torchs.value_ulp),
        most(known.gradient_ulp, own.grad_ulp),
        most(known.torch_gradient_ulp, torchs.grad_ulp),
        same,
    )
