"""Subjects, requests to them, and the subject in this process."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar, get_args, get_origin

import msgspec
import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.errors import LosscliError, first_line
from losscli.implementations.errors import SubjectError
from losscli.implementations.implementation import BoundLoss, Implementation
from losscli.implementations.passes import Pass, PassFactory
from losscli.implementations.wholes import of_whole
from losscli.machine.memory import is_out_of_memory
from losscli.reasons import Code

Operands = dict[str, Tensor]
"""A loss's operands by name in spec order; the prediction is first."""
Gradients = dict[str, Tensor | None]
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Request(msgspec.Struct, Generic[R_co], frozen=True, tag=True):
    """A request whose response has type R."""

    takes_long: ClassVar[bool] = False
    """Whether a worker may take a build's time."""
    keeps_operands: ClassVar[bool] = False
    """Whether the operands stay at their addresses in a worker."""
    drops_operands: ClassVar[bool] = False
    owns_operands: ClassVar[bool] = False
    """Whether the worker may change the kept operands."""
    is_timed: ClassVar[bool] = False
    """Whether its time counts, so that nothing may be tuned."""

    def perform(self, local: "LocalSubject") -> R_co:
        """Perform it in the implementation's process; ``send`` waits for the GPU afterwards."""
        raise NotImplementedError

    def accepts(self, response: Any) -> bool:
        """Tell whether a response of the right type is possible for this request."""
        return True

    @classmethod
    def response_type(cls) -> Any:
        """Return R; an iterable is sent as a list."""
        bases = (base for each in cls.__mro__ for base in vars(each).get("__orig_bases__", ()))
        kind = next(get_args(base)[0] for base in bases if get_args(base))
        return list[get_args(kind)] if get_origin(kind) is Iterable else kind  # type: ignore[misc]


@dataclass(frozen=True)
class Subject:
    """An implementation bound to a case; SubjectError has the first line of its exceptions."""

    implementation: Implementation
    case: Case

    @property
    def name(self) -> str:
        """The implementation's name."""
        return self.implementation.name

    @property
    def device(self) -> str:
        """The case's device."""
        return self.case.device

    def again(self) -> Self:
        """Bind again, so that a compiled implementation forgets earlier inputs."""
        raise NotImplementedError

    def send(self, request: Request[R]) -> R:
        """Perform a request in the implementation's process; return its response."""
        raise NotImplementedError


@dataclass(frozen=True)
class LocalSubject(Subject):
    """A subject in this process, with the methods that requests use."""

    function: BoundLoss
    """Takes whole operands."""
    timed: BoundLoss
    """Takes bench's operands: whole ones, or this rank's shards."""
    captured: list[Any] = field(default_factory=list, init=False, compare=False)
    """CUDA graphs by number, each with its call and the answer that each replay writes to."""
    _others: dict[Case, Self] = field(default_factory=dict, init=False, compare=False)

    @classmethod
    def bind(cls, implementation: Implementation, case: Case) -> Self:
        """Fix the reduction and parameters."""
        with cls.blamed():
            timed = implementation.bind(case)
        whole = of_whole(case, implementation.bind) if case.placement else timed
        return cls(implementation, case, whole, timed)

    def again(self) -> Self:
        return self.bind(self.implementation, self.case)

    def send(self, request: Request[R]) -> R:
        response = request.perform(self)
        self.finish()
        return response

    def repeated(self, passes: PassFactory, *, captured: bool = False) -> Pass:
        """Return a pass for repeated calls or replays, whose exceptions are not wrapped."""
        with self.blamed():
            return passes.capture(self.timed) if captured else passes.make(self.timed)

    def bound_to(self, case: Case | None) -> Self:
        """Return the implementation's subject for a case, bound once."""
        if case is None or case == self.case:
            return self
        if case not in self._others:
            self._others[case] = self.bind(self.implementation, case)
        return self._others[case]

    def result(self, leaves: Operands, wrt: Sequence[str]) -> Tensor:
        """Return the loss of leaves; SubjectError if ``wrt`` names any and it has no gradient."""
        loss = plain(self.function(*leaves.values()))
        if wrt and not loss.requires_grad:
            text = f"returned a loss that has no gradient for {' or '.join(wrt)}"
            raise SubjectError(text, Code.NO_GRADIENT)
        return loss

    def forward(self, operands: Operands, wrt: Sequence[str]) -> tuple[Tensor, Operands]:
        """Return the loss and its leaves."""
        leaves = leaves_of(operands, wrt)
        with self.blamed(), torch.set_grad_enabled(bool(wrt)):
            return self.result(leaves, wrt), leaves

    def finish(self) -> None:
        """Wait for the GPU, so that a kernel's error is raised here."""
        if self.device != "cpu":
            with self.blamed():
                torch.cuda.synchronize(self.device)

    @staticmethod
    @contextmanager
    def blamed() -> Iterator[None]:
        """Turn an exception into SubjectError, except for failed builds and out of memory."""
        try:
            yield
        except (LosscliError, SubjectError):
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise
            text = f"raised {type(error).__name__}: {first_line(error)}".rstrip(": ")
            raise SubjectError(text, refused=isinstance(error, RuntimeError)) from error


def leaves_of(operands: Operands, wrt: Sequence[str]) -> Operands:
    """Return the operands as leaves; those in ``wrt`` require grad."""
    return {name: each.detach().requires_grad_(name in wrt) for name, each in operands.items()}


def plain(result: object) -> Tensor:
    """Return the result; SubjectError if it is no plain tensor."""
    if type(result) is not Tensor:
        raise SubjectError(f"returned a {type(result).__name__}, not a torch.Tensor", Code.WRONG)
    if name := next((each for each in vars(result) if hasattr(Tensor, each)), ""):
        raise SubjectError(f"returned a tensor with an attribute {name} of its own", Code.WRONG)
    return result
