"""Runs the checks on the wrong and the correct implementations of the self-test."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from losscli.cases.axes import DType
from losscli.cases.case import Case
from losscli.config.schema import off_default
from losscli.errors import UnfitError
from losscli.implementations import CUSTOM, IMPLEMENTATIONS, Implementation
from losscli.losses import LINEAR_LOSSES, LOSSES, ROW_FORMS, Reduction, Shape, find_loss
from losscli.ranks.placements import VOCABULARY
from losscli.runs.records import FAIL, SKIPPED, SelfTestResult, VerifyResult
from losscli.verify import runner
from losscli.verify.checks import CHECKS, Cost
from losscli.verify.runner import RunJob
from losscli.verify.selftest.legitimate import LEGITIMATE
from losscli.verify.selftest.wrong import WRONG
from losscli.verify.selftest.wrong.over_ranks import SPLIT_LEGITIMATE, SPLIT_WRONG

SHAPES: dict[Reduction, Shape] = {"mean": (67, 301), "none": (37, 101)}
"""Odd rows and tails."""
LONG = (512, 2048)
"""A shape whose sum needs digits."""
NARROW = (512, 64, 1000)
"""Tokens, width and classes for which the norms of bfloat16 gradients are judged."""
PARAMETERS: dict[str, dict[str, float]] = {
    "cross_entropy": {"label_smoothing": 0.1, "ignore_index": 3},
    "topk_kl_divergence": {"temperature": 1.1},  # forward, as that of a mask is reverse
    "weighted_cross_entropy": {"label_smoothing": 0.1},
}
"""The parameters that mistakes need; those of other losses are off their defaults."""


@dataclass(frozen=True)
class SelfTest:
    """One implementation, and the cases of one loss to test it with."""

    implementation: Implementation
    cases: tuple[Case, ...]
    legitimate: bool

    @property
    def case(self) -> Case:
        """The first case."""
        return self.cases[0]

    @property
    def name(self) -> str:
        """The first case's name."""
        return self.case.name


def plan(device: str) -> list[SelfTest]:
    """Return every implementation with every loss to which it applies."""
    tests: list[SelfTest] = []
    for loss in (*LOSSES, *ROW_FORMS, *LINEAR_LOSSES):
        cases = tuple(_cases(loss, device))
        tests += [test for wrong in WRONG if (test := _of_wrong(wrong, cases)).cases]
        for implementation in LEGITIMATE:
            compiled = implementation.name == "compile"
            # One loss is compiled: that takes longer than all the rest.
            asked = not compiled or loss == next(iter(LOSSES))
            if asked and not implementation.unavailable(cases[0]):
                own = cases[:1] if compiled else cases
                tests.append(SelfTest(implementation, own, legitimate=True))
    return tests


def _of_wrong(wrong: Implementation, cases: Sequence[Case]) -> SelfTest:
    own = tuple(case for case in cases if not wrong.unavailable(case))
    return SelfTest(wrong, own, legitimate=False)


def _cases(loss: str, device: str) -> Iterator[Case]:
    spec = find_loss(loss)
    own: list[tuple[Reduction, Shape, DType]] = [
        *((reduction, shape, "float32") for reduction, shape in SHAPES.items()),
        ("mean", LONG, "float32"),
    ]
    if loss in LINEAR_LOSSES:
        own = [(kind, (rows, 24, classes), dtype) for kind, (rows, classes), dtype in own[:2]]
        own.append(("none", NARROW, "bfloat16"))
    for reduction, shape, dtype in own:
        if reduction in spec.reductions:
            target = spec.default_target_shape(shape)
            params = spec.resolve(PARAMETERS.get(loss) or off_default(spec))
            yield Case(
                loss, shape, target, dtype, reduction, device, params, "normal", seed=0, scale=2.0
            )


def plan_of_ranks(device: str, ranks: int) -> list[SelfTest]:
    """Return every implementation of a loss whose classes are split over ranks."""
    short = (case for case in _cases("cross_entropy", device) if case.shape != LONG)
    cases = tuple(replace(case, ranks=ranks, placement=VOCABULARY) for case in short)
    tests = [_of_wrong(wrong, cases) for wrong in SPLIT_WRONG]
    legitimate = (*(IMPLEMENTATIONS[name] for name in (CUSTOM, "reference")), *SPLIT_LEGITIMATE)
    return [*tests, *(SelfTest(each, cases, legitimate=True) for each in legitimate)]


def run(test: SelfTest, run_job: RunJob = runner.run) -> Generator[SelfTestResult, None, None]:
    """Yield one result: the first check that fails, or that none does."""
    name, legitimate = test.implementation.name, test.legitimate
    ran, reason = False, ""
    for result in _results(test, run_job):
        ran, reason = ran or result.status != SKIPPED, result.reason
        if result.status == FAIL:
            yield SelfTestResult(result.case, name, legitimate, True, result.check, result.reason)
            return
    if not ran:  # a GPU that was broken by one before
        raise UnfitError(f"{name} could not run: {reason}.")
    yield SelfTestResult(test.case, name, legitimate, False)


def _results(test: SelfTest, run_job: RunJob) -> Iterator[VerifyResult]:
    name = test.implementation.name
    for case in test.cases:
        # PyTorch's own mean with a weight and label smoothing waits for the GPU.
        uncaptured = (case.loss, name) == ("weighted_cross_entropy", "functional")
        trials = [
            (test.implementation, check)
            for check in CHECKS.values()
            if not check.missing(case)
            # Each shape would be compiled for minutes, and the compiler fails for empty ones.
            and not (name == "compile" and check.recompiles)
            and not (uncaptured and check.captures)
            and (case.shape not in (LONG, NARROW) or check.cost == Cost.FIRST)
            and (case.shape != LONG or not check.needs_gradient)
        ]
        for job in runner.split(case, trials):
            yield from run_job(job)
