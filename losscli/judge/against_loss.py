"""Judge a candidate against a loss of losscli: the cases, the checks and what is timed."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Any, NamedTuple

from losscli.bench.plan import Task
from losscli.bench.plan import plan as plan_bench
from losscli.cases.axes import DTYPES, PASSES, DType
from losscli.cases.case import Case
from losscli.config.expansion import expand
from losscli.config.schema import Config, Inputs, LossChoice, Timing, off_default
from losscli.implementations import CUSTOM, Implementation
from losscli.implementations.sandbox.worker_requests import InputShapes
from losscli.implementations.subject import workers
from losscli.judge.job import Job
from losscli.judge.loss_of_file import check_arguments, forms
from losscli.judge.recognition import LARGEST
from losscli.judge.verdict_parts import REFERENCE
from losscli.losses import ELEMENT, EVERY_LOSS, HIDDEN_STATE, ROW, Shape, Unit
from losscli.verify.checks import CHECKS, Cost, named
from losscli.verify.runner import Checks
from losscli.verify.runner import plan as plan_verify


class _Sizes(NamedTuple):
    small: Shape
    checked: tuple[Shape, ...]
    many: Shape
    """So many losses that their sum may exceed the range of float16."""
    timed: Mapping[str, tuple[Shape, ...]]
    """On a CPU as large as its caches: every process judges what it times, in float64."""
    timed_quickly: Shape


_OF_ELEMENTS = _Sizes(
    (33, 65),
    ((37, 101), (173, 1001)),
    (173, 1001),
    {"cpu": ((1024, 1024), (3072, 3072)), "cuda": ((1024, 1024), (4096, 4096))},
    (1024, 1024),
)
SIZES: Mapping[Unit, _Sizes] = {
    ELEMENT: _OF_ELEMENTS,
    ROW: _OF_ELEMENTS._replace(many=(100003, 3)),
    HIDDEN_STATE: _Sizes(
        (33, 16, 65),
        ((37, 24, 101), (173, 40, 1001)),
        (100003, 4, 3),
        {
            "cpu": ((256, 128, 4096), (512, 256, 16384)),
            "cuda": ((1024, 1024, 32000), (4096, 2048, 50304)),
        },
        (256, 128, 4096),
    ),
}
SMALL_CHECKS = named(lambda check: check.cost == Cost.FIRST)
ALL_CHECKS = named(lambda check: check.cost <= Cost.FULL)
QUICK_CHECKS = named(lambda check: Cost.FIRST < check.cost <= Cost.QUICK)
FORWARD_CHECKS = named(lambda check: check.cost == Cost.FIRST and not check.needs_gradient)


class KnownLoss:
    """A loss of losscli's own, with its reference and oracle."""

    compared: tuple[str, ...] = (REFERENCE, "functional", "compile")
    """Implementations that the candidate must not be slower than."""

    reference = None
    """A Model's reference; the loss has its own."""

    trains = False
    """Whether gradients are checked and timed too: the first look finds out."""

    def __init__(
        self,
        job: Job,
        device: str,
        candidate: Implementation,
        seed: int,
        model: Implementation | None = None,
    ) -> None:
        """Find the job's loss in the file; NotJudgeableError where its arguments do not fit."""
        self.model, self.beside = model, model.name if model else REFERENCE
        """The implementation that is timed as the reference, and its name."""
        self.job, self.device, self.candidate, self.seed = job, device, candidate, seed
        self.loss, self.spec = job.loss, EVERY_LOSS[job.loss]
        self.definition = candidate.source.definition(job.loss)
        self.forms = forms(job.loss, self.definition)
        check_arguments(candidate.source, self.definition, job.loss, job.arguments)
        self.parameters = {**self._made_with(), **job.parameters}
        self.asked: tuple[DType, ...] = job.dtypes or ("float32",)
        self.others = [] if job.dtypes else [each for each in DTYPES if each not in self.asked]
        """Optional dtypes."""
        self.one_size: Shape | None = None
        """The size of ``get_inputs``, if the candidate is right at no other."""

    @property
    def usual_reductions(self) -> tuple[str, ...]:
        """The reductions that it has to have."""
        reductions = self.spec.reductions
        return (self.job.reduction or ("mean" if "mean" in reductions else reductions[0]),)

    def start(self) -> None:
        """Start the reference: a loss has nothing to start."""

    def check(self) -> None:
        """Compare the candidate's parameters with the reference's: a loss has none."""

    def firsts(self) -> list[Case]:
        """Return the smallest case, and one for each form that may lack a gradient."""
        config = self._config([self._sizes.small])
        forms = ((name, EVERY_LOSS[name].operands) for name in self.forms)
        lacking = (name for name, own in forms if not all(o.torch_differentiates for o in own))
        losses = (*config.losses, *map(LossChoice, lacking))
        return [next(expand(replace(config, losses=(each,)), self.device)) for each in losses]

    def small(self) -> Iterable[Checks]:
        """Return the few checks that run first."""
        config = self._config([self._sizes.small], every=True)
        if self.parameters:
            return self._planned(config, SMALL_CHECKS)
        fixed, off = config.losses[0].parameters, self._off_default(self.loss)
        more = [LossChoice(self.loss, {**fixed, **each}) for each in self._drawn()]
        more += [LossChoice(name, fixed) for name in self.forms]
        # One may hide another: where a ratio's gradient is stopped, no second bound counts.
        alone = [{**fixed, name: value} for name, value in off.items() if len(off) > 1]
        more += [LossChoice(self.loss, each) for each in alone]
        return self._planned(replace(config, losses=(*config.losses, *more)), SMALL_CHECKS)

    def rounds(self) -> Iterator[Iterable[Checks]]:
        """Yield the other checks in rounds; a failed round ends the judging."""
        checked = self._sizes.checked
        if self.job.quick:
            yield self._few((*checked, *self._unpredictable(1)), SMALL_CHECKS)
            yield self._few(checked[:1], QUICK_CHECKS)
            if self.trains and self.spec.unit == ELEMENT:
                # At the defaults, where a kink has no rounding error.
                yield self._planned(self._config(checked[:1]), (*FORWARD_CHECKS, "branches"))
        else:
            yield self._planned(self._config(checked, every=True), ALL_CHECKS)
            yield self._few((*self._timed, *self._unpredictable(2)), SMALL_CHECKS)

    def firsts_of_others(self) -> list[Case]:
        """Return the smallest case of each optional dtype."""
        config = self._config([self._sizes.small], dtypes=self.others)
        return list(expand(config, self.device)) if self.others else []

    def of_others(self) -> Iterator[Checks]:
        """Yield a few checks in the optional dtypes that the candidate takes."""
        if self.others:
            small = self._config([self._sizes.small], every=True, dtypes=self.others)
            yield from self._planned(replace(small, losses=small.losses[-1:]), SMALL_CHECKS)
            *_, long = self._sizes.checked
            for names, size in ((SMALL_CHECKS, long), (FORWARD_CHECKS, self._sizes.many)):
                yield from self._few([size], names, dtypes=self.others)

    def tasks(self) -> list[Task]:
        """Return what is timed: the candidate, PyTorch and losscli's own kernel."""
        quick = self.job.quick
        others = () if quick else (*self.compared[1:], CUSTOM)
        config = replace(
            self._config(self._timed),
            inputs=Inputs(seed=self.seed),
            passes=PASSES if self.trains else PASSES[:1],
            implementations=(self.job.file, self.beside, *others),
            timing=Timing(0.05, 0.2, processes=1) if quick else Timing(0.2, 1.5, processes=3),
        )
        files = {each.name: each for each in (self.candidate, self.model) if each}
        tasks = plan_bench(config, self.device, files)
        return [replace(worth_processes(task), limited=not quick) for task in tasks]

    def instead_of(self, case: Case) -> tuple[Case, ...] | None:
        """Drop an optional dtype, or return the cases of the candidate's own size."""
        if case.dtype in self.others:
            self.others.remove(case.dtype)
            return ()
        if not self.has_other_size(case):
            return None
        self.one_size = self._own_size
        return tuple(self.firsts())

    def has_other_size(self, case: Case) -> bool:
        """Tell whether ``get_inputs`` gives another size than a case."""
        return bool(self._own_size) and self.one_size is None and case.shape != self._own_size

    @cached_property
    def _own_size(self) -> Shape | None:
        if not self.candidate.source.defines("get_inputs"):
            return None
        inputs = workers.of(self.candidate, self.device).ask(InputShapes(), case=None)
        size = inputs[0][0] if inputs else ()
        same = len(size) == len(SIZES[self.spec.unit].small)
        return tuple(size) if same and math.prod(size) <= LARGEST else None

    def _few(
        self, sizes: Sequence[Any], names: tuple[str, ...], *, dtypes: Sequence[DType] = ()
    ) -> list[Checks]:
        """Return checks of a mean with parameters off their defaults."""
        config = self._config(sizes, every=True, dtypes=dtypes)
        mean = config.reductions[-2:][:1]
        return self._planned(replace(config, losses=config.losses[-1:], reductions=mean), names)

    def _planned(self, config: Config, names: tuple[str, ...]) -> list[Checks]:
        fit = tuple(name for name in names if self.trains or not CHECKS[name].needs_gradient)
        files = {self.candidate.name: self.candidate}
        return plan_verify(config, self.device, checks=fit, files=files)

    def _config(
        self, sizes: Sequence[Any], *, every: bool = False, dtypes: Sequence[DType] = ()
    ) -> Config:
        """Return a config; ``every``: with each reduction and form, and off the defaults too."""
        takes = self.definition.takes
        absent = {p.name: p.absent for p in self.spec.parameters if not takes(p.name)}
        given = {**absent, **self.parameters}.items()
        fixed: dict[str, tuple[float, ...]] = {n: (v,) for n, v in given if v is not None}
        choices = [LossChoice(self.loss, fixed)]
        if every:
            for name in (*self.forms, self.loss):
                others = fixed if self.parameters else fixed | self._off_default(name)
                if name != self.loss or others != fixed:
                    choices.append(LossChoice(name, others))
        reductions: tuple[Any, ...] = self.usual_reductions
        if every and not self.job.reduction and takes("reduction"):
            reductions = self.spec.reductions
        return Config(
            device=self.device,
            losses=tuple(choices),
            sizes=tuple(sizes),
            dtypes=tuple(dtypes) or self.asked,
            reductions=reductions,
            implementations=(self.job.file,),
            inputs=Inputs(("normal",), 2.0, self.seed),
            whole_targets=self.candidate.setting.whole_targets,
        )

    def _off_default(self, loss: str) -> dict[str, tuple[float, ...]]:
        takes = self.definition.takes
        return {n: (value,) for n, value in off_default(EVERY_LOSS[loss]).items() if takes(n)}

    def _made_with(self) -> dict[str, float]:
        """Return the parameters that ``get_init_inputs`` gives a module."""
        if not (constructor := self.definition.constructor):
            return {}
        made_with = self.candidate.source.parsed.made_with or ()
        given = dict(zip(constructor.names, made_with, strict=False))
        known = ((each.name, given.get(each.name)) for each in self.spec.parameters)
        return {name: float(value) for name, value in known if isinstance(value, int | float)}

    @property
    def _timed(self) -> tuple[Any, ...]:
        usual = self._sizes.timed[self.device.partition(":")[0]]
        return self.job.sizes or ((self._sizes.timed_quickly,) if self.job.quick else usual)

    @property
    def _sizes(self) -> _Sizes:
        usual, one = SIZES[self.spec.unit], self.one_size
        return _Sizes(one, (one,), one, dict.fromkeys(usual.timed, (one,)), one) if one else usual

    def _unpredictable(self, count: int) -> list[tuple[int, ...]]:
        """Return odd sizes between half the largest timed size and that size."""
        if self.one_size:
            return []
        random = Random(self.seed)
        largest = max(self._timed, key=math.prod)

        def drawn(length: int) -> int:
            half = -(-length // 2)
            return random.randint(half, max(length - 1, half)) | 1

        return [tuple(map(drawn, largest)) for _ in range(count)]

    def _drawn(self) -> list[dict[str, tuple[float, ...]]]:
        """Return random parameters, which no candidate can foresee."""
        random, takes = Random(self.seed), self.definition.takes
        values = {p.name: p.drawn(random) for p in self.spec.parameters if takes(p.name)}
        return [
            {name: (own[number % len(own)],) for name, own in values.items()}
            for number in range(max(map(len, values.values()), default=0))
        ]


def worth_processes(task: Task) -> Task:
    """Time a large case in one process: each would make and check gigabytes again."""
    if math.prod(task.case.shape) < 2**28:
        return task
    return replace(task, timing=replace(task.timing, processes=1))
