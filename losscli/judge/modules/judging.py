"""Judges a module of any signature against a ``Model``, where losscli has no oracle for the loss.

The reference gives the truth in float64, in a process of its own, for inputs that the judge draws.
How far a result may be from it is told in ``distances``, what is timed in ``timing``.
Of the checks of verify, those that need to know the formula are not made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import msgspec
import torch
from torch import Tensor

from losscli.axes import FORWARD, FORWARD_BACKWARD
from losscli.implementations import remote
from losscli.implementations.errors import SandboxError, SubjectError
from losscli.implementations.files import Definition, UserFile
from losscli.implementations.sandbox.methods import Argument, ArgumentFacts, ModuleAnswer
from losscli.judge.device_lock import device_lock
from losscli.judge.findings import Deadline, Ended, Findings, build_code_of, code_of, stage
from losscli.judge.job import Job
from losscli.judge.modules import inputs as module_inputs
from losscli.judge.modules.distances import Distance, distance
from losscli.judge.modules.inputs import Draw
from losscli.judge.modules.reference import Reference, Truth
from losscli.judge.modules.timing import ModuleTiming
from losscli.judge.modules.worker import AS_MADE, ModuleWorker
from losscli.judge.parts import JudgeReason, ReasonCode, Stage
from losscli.judge.reasoning import reason_of
from losscli.judge.recognition import WrongReferenceError
from losscli.judge.threads import one_thread
from losscli.truth.distances import misfit
from losscli.truth.fingerprint import same_bits

MOST_ELEMENTS = 2**24
"""Elements of an argument from which the full size is drawn once, and no other way."""
REPEATS = 3


@dataclass(frozen=True)
class _Case:
    """Arguments of one size and dtype."""

    facts: list[ArgumentFacts]
    dtype: str
    """That the modules are cast to; empty to leave them as they are."""

    @property
    def name(self) -> str:
        return module_inputs.name_of(self.facts)


class ModuleJudging:
    """One job, beyond its parse."""

    def __init__(
        self,
        job: Job,
        device: str,
        file: UserFile,
        definition: Definition,
        found: Findings,
        notify: Callable[[str], None],
    ) -> None:
        self.job, self.device, self.file, self.found = job, device, file, found
        self.definition, self.notify = definition, notify
        self.candidate = ModuleWorker(file, device)
        self.reference = Reference.of(job.reference or str(file.path), device)
        seed = int.from_bytes(os.urandom(6))
        self.generator = torch.Generator().manual_seed(seed)
        self.seed = seed % 2**31
        self.deadline = Deadline(job.limits.total_seconds)
        self.now: Stage = "build"

    def run(self) -> None:
        """Go through the stages."""
        try:
            with device_lock(self.device, shared=True, notify=self.notify), one_thread():
                self._checked()
            if self.job.timed:
                with stage(self.found, "time"):
                    self._time()
        except WrongReferenceError as error:
            self._end("bad_reference", str(error))
        except torch.OutOfMemoryError as error:
            self._end("no_room", str(error).partition("\n")[0])
        finally:
            self.reference.end()

    def _checked(self) -> None:
        """Build, and check all cases, small ones first."""
        dtypes: tuple[str, ...] = self.job.dtypes or (AS_MADE,)
        with stage(self.found, "build"):
            facts = self.reference.start(self.seed, dtypes)
            self._make(dtypes)
        sizes = [(each, module_inputs.reduced(each)) for each in self._of_dtypes(facts)]
        full = [_Case(each, dtype) for (each, _), dtype in zip(sizes, dtypes, strict=True)]
        small = [_Case(less or e, dtype) for (e, less), dtype in zip(sizes, dtypes, strict=True)]
        self.full = full
        with stage(self.found, "small"):
            self.now = "small"
            for case, whole in zip(small, full, strict=True):
                self._small(case, refusable=case != whole)
            self._ended()
        with stage(self.found, "checks"):
            self.now = "checks"
            for case, whole in zip(small, full, strict=True):
                if self._refuses(case):
                    case = whole
                elif case != whole:
                    self._values(whole)
                self._values(case, every=True)
                self._repeats(case)
                self._contents(case)
                self._layouts(case)
            self._left()
            self._ended()

    def _of_dtypes(self, facts: list[ArgumentFacts]) -> list[list[ArgumentFacts]]:
        return [module_inputs.cast(facts, d) for d in self.job.dtypes] or [facts]

    def _make(self, dtypes: Sequence[str]) -> None:
        """Import the candidate, make it in each dtype, and give it the reference's parameters."""
        try:
            for dtype in dtypes:
                state = self.candidate.make(dtype, self.seed)
                self.found.isolation = self.candidate.isolation
                self._fits(state)
                self.candidate.load(dtype, self.reference.state)
        except SubjectError as error:
            self._end(build_code_of(error), str(error))
        self._changed()

    def _fits(self, state: dict[str, Tensor]) -> None:
        """Compare the names and shapes of parameters and buffers."""
        own, due = (
            {name: tuple(each.shape) for name, each in given.items()}
            for given in (state, self.reference.state)
        )
        if own != due:
            raise WrongReferenceError(
                f"the reference {self.reference.name} has the parameters and buffers "
                f"{_listed(due)}, and {self.definition.name} has {_listed(own)}, so that those of "
                "the reference cannot be given to it. Use the same names and shapes"
            )

    def _small(self, case: _Case, *, refusable: bool) -> None:
        """Check the value and the gradients once."""
        arguments = self._draw(case, "usual")
        incoming = self._incoming(case, arguments)
        self.reference.check(arguments, incoming[0], case.dtype)
        self._check("value", case, arguments, incoming[0], refusable=refusable)
        self._changed()

    def _values(self, case: _Case, *, every: bool = False) -> None:
        """Check the value and the gradients in each draw, for each incoming gradient."""
        few = module_inputs.elements(case.facts) > MOST_ELEMENTS and not every
        kinds = list(module_inputs.draws(case.facts))
        for kind in kinds[:1] if few else kinds:
            arguments = self._draw(case, kind)
            incoming = self._incoming(case, arguments)
            if kind != "usual" and not self._in_domain(case, arguments, incoming[0]):
                continue
            for each in incoming[:1] if few else incoming:
                self._check("value", case, arguments, each, note=kind)
        self._changed()

    def _in_domain(self, case: _Case, arguments: list[Argument], incoming: Tensor) -> bool:
        """Tell whether the reference takes a draw that ``get_inputs`` would not give."""
        try:
            output = self.reference.truth(arguments, incoming, case.dtype).answer.output
        except WrongReferenceError:
            if self.reference.died:
                raise
            return False
        return bool(output.isfinite().all())

    def _repeats(self, case: _Case) -> None:
        """Call it several times on the same arguments, and compare the bits."""
        arguments = self._draw(case, "usual")
        incoming = self._incoming(case, arguments)[1]
        answers = [self._asked("determinism", case, arguments, incoming) for _ in range(REPEATS)]
        known = [_results(each) for each in answers if each]
        if not known:
            return
        same = all(
            same_bits(each, other)
            for later in known[1:]
            for each, other in zip(known[0], later, strict=False)
        )
        before = self.found.accuracy.deterministic
        self.found.accuracy = msgspec.structs.replace(
            self.found.accuracy, deterministic=same if before is None else before and same
        )
        self._count("pass" if same else "warn")

    def _contents(self, case: _Case) -> None:
        """Change the contents of the same memory, but for the first row."""
        arguments = self._draw(case, "usual")
        incoming = self._incoming(case, arguments)[1]
        self._check("steps", case, arguments, incoming)
        for kept in (1, 0):
            for old, new in zip(arguments, self._draw(case, "usual"), strict=True):
                if old.tensor is not None and new.tensor is not None:
                    kept = kept if old.tensor.dim() and len(old.tensor) > 1 else 0
                    rows = slice(kept, None) if old.tensor.dim() else ...
                    old.tensor[rows] = new.tensor[rows]
            note = "after a change of the contents of its operands"
            self._check("steps", case, arguments, incoming, note=note)

    def _layouts(self, case: _Case) -> None:
        """Give it arguments that are not contiguous, or not aligned; it may refuse them."""
        arguments = self._draw(case, "usual")
        incoming = self._incoming(case, arguments)[1]
        for note, lay in (("transposed", _transposed), ("not aligned", _shifted)):
            given = [
                each if each.tensor is None else Argument(lay(each.tensor)) for each in arguments
            ]
            self._check("layouts", case, given, incoming, note=note, refusable=True)
        if incoming.dim():
            one = torch.ones((), dtype=incoming.dtype, device=incoming.device)
            expanded, note = one.expand(incoming.shape), "incoming gradient expanded"
            self._check("layouts", case, arguments, expanded, note=note, refusable=True)
        self._changed()

    def _check(
        self,
        check: str,
        case: _Case,
        arguments: list[Argument],
        incoming: Tensor,
        *,
        note: str = "",
        refusable: bool = False,
    ) -> None:
        """Compare one call with the truth."""
        self.deadline.check(self.found, self.now)
        truth = self.reference.truth(arguments, incoming, case.dtype)
        got = self._asked(check, case, arguments, incoming, note=note, refusable=refusable)
        if got is None:
            return
        wrong = self.compare(case.facts, got, truth)
        self._count("fail" if wrong else "pass")
        for what, text in wrong.items():
            named = check if check != "value" or what == RESULT else "gradients"
            about = f"{what} ({note})" if note and note != "usual" else what
            self._take("wrong", f"{about}: {text}", named, case)

    def compare(
        self, facts: Sequence[ArgumentFacts], got: ModuleAnswer, truth: Truth
    ) -> dict[str, str]:
        """Say what is wrong with an answer, by what it is of; take the errors of what is right."""
        own, due = truth.own, truth.answer
        text = misfit(got.output, own.output.shape, own.output, own.output.dtype)
        if text:
            return {RESULT: text}
        wrong: dict[str, str] = {}
        terms = module_inputs.elements(facts) // max(got.output.numel(), 1)
        found = distance(got.output, due.output, own.output, terms)
        self._measured(found, "value_ulp", "torch_value_ulp")
        if found.wrong:
            wrong[RESULT] = found.wrong
        if not self._trains(got):
            return wrong
        for name, theirs in own.gradients.items():
            exact, given = due.gradients.get(name), got.gradients.get(name)
            if theirs is None or exact is None:
                continue
            named = f"gradient of {self._named(name)}"
            text = misfit(given, theirs.shape, theirs, theirs.dtype)
            if not text:
                assert given is not None
                found = distance(given, exact, theirs)
                self._measured(found, "gradient_ulp", "torch_gradient_ulp")
                text = found.wrong
            if text:
                wrong[named] = text
        return wrong

    def _trains(self, got: ModuleAnswer) -> bool:
        """Take whether an answer has gradients."""
        if not got.trains and self.found.trains is not False:
            self.found.trains = False
            text = "its result has no gradient, so that nothing can be trained with it"
            self._take("no_gradient", text)
        elif got.trains and self.found.trains is None:
            self.found.trains = True
        return bool(self.found.trains)

    def _named(self, gradient: str) -> str:
        """Return the candidate's own name of what a gradient is of."""
        kind, _, which = gradient.partition(" ")
        names = self.definition.signature.names
        if kind == "argument" and int(which) < len(names):
            return names[int(which)]
        return gradient

    def _asked(
        self,
        check: str,
        case: _Case,
        arguments: list[Argument],
        incoming: Tensor,
        *,
        note: str = "",
        refusable: bool = False,
    ) -> ModuleAnswer | None:
        """Return the candidate's answer; None where it raises, or overwrites its arguments."""
        before = [None if a.tensor is None else a.tensor.clone() for a in arguments]
        own = incoming.clone()
        told = f" ({note})" if note and note != "usual" else ""
        try:
            got = self.candidate.answer(arguments, incoming, case.dtype)
        except SandboxError as error:
            self._end(code_of(error), str(error), check, case)
        except SubjectError as error:
            self._count("fail")
            if not refusable:
                self._end("raised", f"{error}{told}", check, case)
            self._take("refuses", f"{error}{told}", check, case)
            return None
        spoiled = [] if same_bits(own, incoming) else ["the incoming gradient"]
        for number, (argument, copy) in enumerate(zip(arguments, before, strict=True)):
            if copy is not None and not same_bits(copy, argument.tensor):
                spoiled.append(self._named(f"argument {number}"))
                assert argument.tensor is not None
                argument.tensor.copy_(copy)
        if spoiled:
            incoming.copy_(own) if incoming.is_contiguous() else None
            self._count("fail")
            self._take("overwrote", f"overwrote {', '.join(spoiled)}{told}", check, case)
            return None
        return got

    def _refuses(self, case: _Case) -> bool:
        """Tell whether it has raised on a size that is not that of ``get_inputs``."""
        return any(r.code == "refuses" and r.case == case.name for r in self.found.reasons)

    def _draw(self, case: _Case, kind: Draw) -> list[Argument]:
        return module_inputs.draw(case.facts, kind, self.generator, self.device)

    def _incoming(self, case: _Case, arguments: list[Argument]) -> tuple[Tensor, Tensor]:
        """Return two incoming gradients: ones, and others."""
        output = self.reference.output(arguments, case.dtype)
        if not output.is_floating_point():
            raise WrongReferenceError(
                f"the reference {self.reference.name} cannot be differentiated: it gives "
                f"{output.dtype}"
            )
        ones = torch.ones_like(output)
        other = torch.randn(output.shape, generator=self.generator) if output.dim() else -2.5
        return ones, other.to(output) if isinstance(other, Tensor) else ones * other

    def _changed(self) -> None:
        """Take what its calls have changed in its process."""
        if changed := remote.changes_of(self.file):
            text = f"left behind: {'; '.join(changed)}"
            code = reason_of("left_behind", text)
            check = "" if self.now == "build" else "left_behind"
            if code == "patched" or self.now == "build":
                self._end(code, text, check)
            self._take(code, text, check)

    def _left(self) -> None:
        """Look for processes that it has left."""
        try:
            left = self.candidate.leftovers()
        except SubjectError as error:
            self._end(code_of(error), str(error))
        if left:
            text = f"left running: {', '.join(left[:5])}"
            self._end("left_process", text)

    def _time(self) -> None:
        """Time it beside the reference, on the arguments of ``get_inputs``'s sizes."""
        self.now = "time"
        passes = (FORWARD, FORWARD_BACKWARD) if self.found.trains else (FORWARD,)
        with device_lock(self.device, notify=self.notify):
            for case in self.full:
                for pass_ in passes:
                    self.deadline.check(self.found, self.now)
                    arguments = self._draw(case, "usual")
                    incoming = self._incoming(case, arguments)[0]
                    timing = ModuleTiming(
                        self.candidate,
                        self.reference,
                        case.facts,
                        arguments,
                        incoming if pass_ == FORWARD_BACKWARD else None,
                        case.dtype,
                        self.generator,
                        self.compare,
                    )
                    try:
                        timing.run(quick=self.job.quick)
                    except SubjectError as error:
                        self._end(code_of(error), str(error), "", case)
                    self._take_time(timing, f"{case.name}, {pass_}", case, pass_)

    def _take_time(self, timing: ModuleTiming, name: str, case: _Case, pass_: str) -> None:
        """Take what a timing has found."""
        for code, text in timing.troubles:
            self.found.reasons.append(JudgeReason(code, "time", text, case=name))
        if timing.troubles:
            return
        self.found.speed.append(timing.speed(case.name, pass_))
        ratio = timing.ratio
        if ratio.verdict == "slower":
            text = f"{1 / ratio.value:.2f} times the time of the reference"
            self.found.reasons.append(JudgeReason("slower", "time", text, case=name))

    def _count(self, status: str) -> None:
        self.found.checks[status] = self.found.checks.get(status, 0) + 1

    def _measured(self, found: Distance, name: str, own: str) -> None:
        """Keep the largest errors of what is right."""
        if found.wrong:
            return
        known = self.found.accuracy
        largest = {
            name: max(getattr(known, name) or 0.0, found.ulp),
            own: max(getattr(known, own) or 0.0, found.reference_ulp),
        }
        self.found.accuracy = msgspec.structs.replace(known, **largest)

    def _take(
        self, code: ReasonCode, text: str, check: str = "", case: _Case | None = None
    ) -> None:
        """Take a reason, the first of its check."""
        known = {(reason.check, reason.code) for reason in self.found.reasons}
        if (check, code) not in known:
            self.found.reasons.append(self._reason(code, text, check, case))

    def _reason(self, code: ReasonCode, text: str, check: str, case: _Case | None) -> JudgeReason:
        return JudgeReason(code, self.now, text, check, case.name if case else "")

    def _end(
        self, code: ReasonCode, text: str, check: str = "", case: _Case | None = None
    ) -> NoReturn:
        self.found.end(self._reason(code, text, check, case))

    def _ended(self) -> None:
        """End the judging where something is wrong."""
        if self.found.failed:
            raise Ended


RESULT = "result"


def _listed(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items()) or "none"


def _results(answer: ModuleAnswer) -> list[Tensor | None]:
    return [answer.output, *answer.gradients.values()]


def _transposed(tensor: Tensor) -> Tensor:
    """Return the same values in memory of another order."""
    if tensor.dim() < 2:
        return torch.stack([tensor, tensor], -1)[..., 0]
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def _shifted(tensor: Tensor) -> Tensor:
    """Return the same values in memory that begins one element after an aligned address."""
    whole = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    whole[1:] = tensor.flatten()
    return whole[1:].view(tensor.shape)
