"""Judge a candidate against a ``Model``, where losscli does not know the loss."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from msgspec import structs

from losscli.bench.plan import Task
from losscli.cases.axes import PASSES, DType
from losscli.cases.case import Case
from losscli.cases.model_case import NAME, Argument, ModelCase
from losscli.config.schema import Timing
from losscli.implementations import Implementation
from losscli.implementations.builtin import of_file
from losscli.implementations.requests import Call, Forward
from losscli.implementations.sandbox.worker_requests import ModelArguments, ModelState
from losscli.implementations.subject import workers
from losscli.judge.against_loss import SMALL_CHECKS
from losscli.judge.job import Job
from losscli.judge.verdict_parts import REFERENCE
from losscli.losses import MODEL
from losscli.truth.inputs import make_inputs, unusual_draws
from losscli.truth.model import ModelOracle, Reference, WrongReferenceError
from losscli.truth.problem import Problem
from losscli.truth.setup import ThirdParty
from losscli.verify.checks import CHECKS, Cost, named
from losscli.verify.runner import Checks


class AnyModel:
    """The ``Model`` of a file, its own oracle in float64; ``KnownLoss`` describes most methods."""

    compared: tuple[str, ...] = (REFERENCE,)
    others: Sequence[DType] = ()
    """A Model may be no loss in another dtype."""
    parameters: ClassVar[Mapping[str, float]] = {}
    usual_reductions: tuple[str, ...] = ()
    trains = False

    def __init__(
        self, job: Job, device: str, candidate: Implementation, reference: Implementation, seed: int
    ) -> None:
        self.job, self.device, self.seed = job, device, seed
        self.candidate, self.reference = candidate, reference
        file = reference.source
        self.definition = candidate.source.definition("")
        if file.named == job.file:  # judged against itself, in another worker
            named = file.named.replace(file.path.name, f"./{file.path.name}")
            self.reference = of_file(replace(file, named=named), reference.setting)
        self.beside = self.reference.name
        self.full: list[ModelCase] = []
        self.smallest: list[ModelCase] = []

    def start(self) -> None:
        """Find the reference's arguments; WrongReferenceError if it cannot be an oracle."""
        described = self._described()
        for dtype in self.job.dtypes or ("",):
            case = self._probed(described.of_dtype(dtype) if dtype else described)
            self.full.append(case)
            less = case.of_rows(37)  # no multiple of a tile, a warp or a vector
            try:
                self.smallest.append(self._probed(less) if less else case)
            except WrongReferenceError:
                if self.died:
                    raise
                self.smallest.append(case)

    def check(self) -> None:
        """Raise WrongReferenceError where the candidate's parameters and buffers differ."""
        worker = workers.of(self.candidate, self.device)
        state, _ = worker.ask(ModelState(self.seed), case=None)
        own = {name: tuple(each.shape) for name, each in state.items()}
        due = {each.name: each.shape or () for each in self.full[0].state}
        if own != due:
            both = f"{_listed(due)}, and {self.definition.name} has {_listed(own)}"
            why = "so that those of the reference cannot be given to it"
            told = f"has the parameters and buffers {both}, {why}. Use the same names and shapes"
            raise Reference(self.full[0], self.reference).wrong(told)

    def firsts(self) -> list[Case]:
        return list(self.smallest)

    def small(self) -> Iterator[Checks]:
        return (self._checks(case, SMALL_CHECKS) for case in self.smallest)

    def rounds(self) -> Iterator[Iterable[Checks]]:
        for small, full in zip(self.smallest, self.full, strict=True):
            yield self._of_draws(small, self._asked(small))
            if small is not full:
                yield self._of_draws(full, SMALL_CHECKS)

    def firsts_of_others(self) -> list[Case]:
        return []

    def of_others(self) -> Iterator[Checks]:
        yield from ()

    def tasks(self) -> list[Task]:
        """Return what is timed with the reference: the sizes of ``get_inputs``."""
        passes = PASSES if self.trains else PASSES[:1]
        timing = Timing(0.1, 0.6, processes=1) if self.job.quick else Timing(0.4, 3.0, processes=1)
        files = {each.name: each for each in (self.candidate, self.reference)}
        about: dict[str, Any] = {"files": files, "reference": self.reference}
        return [Task(case, dict.fromkeys(passes, (*files,)), timing, **about) for case in self.full]

    def instead_of(self, case: Case) -> tuple[Case, ...] | None:
        """Return the case of ``get_inputs``, unless it is this one."""
        for number, (small, full) in enumerate(zip(self.smallest, self.full, strict=True)):
            if case == small != full:
                self.smallest[number] = full
                return (full,)
        return None

    def has_other_size(self, case: Case) -> bool:
        return False  # all sizes are those of the Model

    @property
    def died(self) -> bool:
        """Whether the reference's process has ended."""
        return any(worker.died for worker in workers.known(self.reference.source))

    def _asked(self, case: ModelCase) -> tuple[str, ...]:
        """Return the checks of a case: fewer for large arguments and without a GPU."""
        most = Cost.FULL if case.largest <= 2**22 else Cost.FEW
        on_gpu = Cost.QUICK if self.job.quick else Cost.FULL
        return named(
            lambda check: (
                MODEL in check.units
                and check.cost <= (on_gpu if check.needs_gpu else most)
                and not (check.needs_gpu and self.device == "cpu")
            )
        )

    def _of_draws(self, case: ModelCase, names: tuple[str, ...]) -> Iterator[Checks]:
        yield self._checks(case, names)
        # Of large arguments only usual values are checked.
        for draw in unusual_draws(case) if case.largest <= 2**24 else ():
            other = structs.replace(case, draw=draw)
            if self._is_in_domain(other):
                yield self._checks(other, SMALL_CHECKS)

    def _checks(self, case: ModelCase, names: tuple[str, ...]) -> Checks:
        if not self.trains:
            case = case.with_result(case.output, case.output_dtype, given=())
        checks = (CHECKS[name] for name in names)
        fit = (check for check in checks if self.trains or not check.needs_gradient)
        trials = tuple((self.candidate, check) for check in fit)
        return Checks(case, trials, reference=self.reference)

    def _is_in_domain(self, case: ModelCase) -> bool:
        try:
            problem = Problem.of(case, third_party=ThirdParty(reference=self.reference))
            return all(bool(truth.value.isfinite().all()) for truth in problem.value())
        except WrongReferenceError:
            if self.died:
                raise
            return False

    def _described(self) -> ModelCase:
        case = ModelCase(
            *(NAME, (), (), "float32", "none", self.device, {}, "normal", self.seed),
            model=self.reference.name,
            made_with=self.seed,
        )
        reference = Reference(case, self.reference)
        state, parameters = reference.ask(ModelState(case.made_with))
        names = self.definition.signature.names
        arguments = []
        for number, each in enumerate(reference.ask(ModelArguments())):
            known = number < len(names) and names[number] not in state
            name = names[number] if known else f"argument {number}"
            arguments.append(structs.replace(each, name=name, differentiable=each.is_floating))
        if not any(argument.is_floating for argument in arguments):
            raise reference.wrong("get_inputs gives no floating tensor")
        described = tuple(
            Argument(name, tuple(x.shape), _name_of(x.dtype), differentiable=name in parameters)
            for name, x in state.items()
        )
        return structs.replace(case, arguments=tuple(arguments), state=described).settled()

    def _probed(self, case: ModelCase) -> ModelCase:
        """Return the case with the shape of its result and the operands that have gradients."""
        reference = Reference(case, self.reference)
        operands = make_inputs(case, self.reference)
        result = reference.send(Forward(operands))
        if not result.is_floating_point():
            raise reference.wrong(f"cannot be differentiated: it gives {result.dtype}")
        call = Call(operands, case.spec.differentiable, torch.ones_like(result))
        given = {n for n, g in reference.send(call).gradients.items() if g is not None}
        if not given:
            raise reference.wrong("cannot be differentiated: its result has no gradient")
        case = case.with_result(tuple(result.shape), _name_of(result.dtype), given)
        operands = make_inputs(case, self.reference)
        oracle = ModelOracle(case, operands, reference=self.reference)
        first, second = (oracle.exact_result() for _ in range(2))
        if first.dtype != torch.float64:
            raise reference.wrong(f"gives {first.dtype} in float64")
        if not bool(first.isfinite().any()):
            raise reference.wrong("gives no finite number on inputs like those of its get_inputs")
        if not torch.allclose(first, second, 1e-9, 0.0, equal_nan=True):
            raise reference.wrong("gives different results for the same inputs")
        return case


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items()) or "none"
