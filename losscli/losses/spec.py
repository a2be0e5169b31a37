"""The spec of a loss."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

from losscli.machine.pytorch import Tensor, torch

from .calling import Calls, named_call
from .domain import Domain
from .fields import FLOATING, Operand, Parameter, Relations, Terms, Tolerance
from .formulas import NO_KINKS, REDUCTIONS, SMOOTH, Reduction, difference, never, promoted, widened
from .shapes import Shape, broadcast

Unit = Literal["element", "row", "hidden state", "model"]
ELEMENT: Unit = "element"
ROW: Unit = "row"
HIDDEN_STATE: Unit = "hidden state"
MODEL: Unit = "model"
"""What has its own loss: an element, a row, a hidden state, or a whole ``Model`` call."""
LossFunction = Callable[..., Tensor]
"""``f(*operands, reduction, **parameters) -> loss``, with operands in the spec's order."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One loss, from which operators, inputs, the oracle, checks, configs and tables follow.

    The reference is the oracle: in float64, its value and autograd gradients must be right within
    4 ulp, or checks blame kernels for its errors.
    """

    unit: ClassVar[Unit]
    composed_of: tuple[str, ...] = ()
    """The losses whose kernels compute it, if it has none of its own."""
    chooses_order: ClassVar[bool] = False
    """Whether a library chooses the order of sums on a GPU, as cuBLAS by stream and workspace."""
    name: str
    """Stem of the header, name of the op, YAML key and command-line argument."""
    formula: str
    """An element's or row's loss, as a person writes it."""
    operands: tuple[Operand, ...]
    """Its operands, the prediction first."""
    parameters: tuple[Parameter, ...] = ()
    reductions: tuple[Reduction, ...] = REDUCTIONS
    wide: bool = False
    """Whether 16-bit operands give a float32 loss."""
    reference: LossFunction
    """The differentiable PyTorch formula that defines the loss, for any floating dtype."""
    functional_takes: frozenset[str] | None = None
    """The parameters that ``functional`` supports; None for all."""
    functional: LossFunction | None = None
    """PyTorch's usual implementation, if not the reference: its own function through ``aten.py``,
    which computes 16 bits in 16 and may lose digits. It is the baseline for timing, and has the
    gradients of the reference's operands."""
    loss: LossFunction
    """The public function, ``losscli.functional.NAME_loss``, with losscli's kernel."""
    form_of: str = ""
    """The function that computes it, given further or other operands; or empty."""
    bind_loss: Callable[[Reduction, Mapping[str, float]], Callable[..., Tensor]] | None = None
    """Binds ``loss`` as a user would; None if it takes the spec's operands in order."""
    loss_with_grad: Any = None
    """The public function that also returns the prediction's gradient, if there is one."""
    module: type[Any] = object
    """The class that ``losscli.nn`` combines with ``torch.nn.Module``."""
    kinks: Callable[[Mapping[str, float]], tuple[float, ...]] = NO_KINKS
    """Where the derivative jumps, in units of ``branch_coordinate``."""
    branch_coordinate: Callable[..., Tensor] = difference
    """The scalar that selects each element's branch."""
    branches: Callable[[Mapping[str, float]], tuple[str, ...]] = SMOOTH
    """Names of the branches below, between and above the kinks."""
    stops_gradient: Callable[[Mapping[str, float]], bool] = never
    """Whether a factor that depends on the prediction counts as constant for the gradient."""
    picks: bool = False
    """Whether a row's loss reads only its class's element of the prediction, and backward none."""
    temporaries: int = 4
    """Most tensors of ``temporary_elements`` that the reference holds at once beside its operands,
    loss and gradients, for the memory plan. The tests measure it; the default is what mse takes."""
    squares: bool = False
    """Whether the loss adds up squares of its operands, which have to be in range."""
    widens: bool = False
    """Whether the reference computes 16 bits in float32, and so needs larger tensors."""
    second_order: LossFunction | None = None
    """The formula inside the domains, if autograd's second derivatives are not exact."""
    tolerance: Tolerance | None = None
    """The looser tolerance of this loss; None for 4 ulp."""
    terms: Terms | None = None
    """The terms that cancel in the loss or its derivatives; None measures errors at the results."""
    relations: Relations = field(default_factory=Relations)
    operands_of: Callable[[Mapping[str, float]], tuple[Operand, ...]] | None = None
    """The operands for given parameters, if their domains depend on them."""
    _given: dict[tuple[tuple[str, float], ...], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Cached specs per parameters: a case asks for its own thousands of times."""

    def given(self, parameters: Mapping[str, float]) -> Self:
        """Return the spec with the operands for these parameters."""
        if self.operands_of is None:
            return self
        key = tuple(parameters.items())
        if key not in self._given:
            operands = self.operands_of(self.resolve(parameters))
            self._given[key] = replace(self, operands=operands, operands_of=None)
        found: Self = self._given[key]
        return found

    def form(self, own: Operand | None, fixed: Mapping[str, float], **changes: Any) -> Self:
        """Return the loss with ``own`` alone of its optional operands, and fixed settings."""
        operands = tuple(each for each in self.operands if not each.optional or each is own)
        names = [each.name for each in operands]

        # Adapts a function of all operands to those of the form.
        def of(function: Callable[..., Any]) -> Callable[..., Any]:
            def called(*tensors: Tensor, **settings: Any) -> Any:
                given = dict(zip(names, tensors, strict=True))
                return function(*map(given.get, self.names), **settings, **fixed)

            return called

        of_operands = ("reference", "functional", "counts", "from_kinks", "undecided")
        found = {name: getattr(self, name, None) for name in of_operands}
        fields: dict[str, Any] = {name: of(each) for name, each in found.items() if each}
        if own:
            fields["name"] = f"{own.form}_{self.name}"
        if self.terms:
            fields["terms"] = replace(self.terms, of=of(self.terms.of))
        return replace(self, operands=operands, **(fields | changes))

    def bound(self, reduction: Reduction, parameters: Mapping[str, float]) -> Callable[..., Tensor]:
        """Return the public function with fixed settings, as fast as a user's call."""
        if self.bind_loss:
            return self.bind_loss(reduction, parameters)
        return named_call(self.loss, self.names, self.settings(reduction, parameters))

    def settings(
        self, reduction: Reduction, parameters: Mapping[str, float], **fixed: float
    ) -> dict[str, Any]:
        """Return a call's keyword arguments: parameters, and the reduction if there are several."""
        named = {"reduction": reduction} if len(self.reductions) > 1 else {}
        return {**named, **self.given_as({**parameters, **fixed})}

    def given_as(self, parameters: Mapping[str, float]) -> dict[str, Any]:
        """Return parameter values as users pass them, such as True for a switch."""
        kinds = {parameter.name: parameter for parameter in self.parameters}
        return {name: kinds[name].given_as(value) for name, value in parameters.items()}

    def resolve(self, given: Mapping[str, float]) -> dict[str, float]:
        """Return all parameters in order, with defaults."""
        return {p.name: float(given.get(p.name, p.default)) for p in self.parameters}

    def dtype_of(self, operands: Mapping[str, Tensor]) -> "torch.dtype":
        """Return the loss's dtype: promoted, and for some losses at least float32."""
        found = promoted(*(operands[name] for name in self.promoted))
        return widened(found) if self.wide else found

    @property
    def function_name(self) -> str:
        """The public function's name, which is PyTorch's if PyTorch has it."""
        return str(getattr(self.loss, "__name__", f"{self.name}_loss"))

    @property
    def function_names(self) -> tuple[str, ...]:
        """The names under which third-party files define it."""
        return (self.function_name, self.form_of) if self.form_of else (self.function_name,)

    def default_target_shape(self, shape: Shape) -> Shape:
        """Return a generated target's shape, from the prediction's."""
        return self.operands[1].shape(shape)

    @property
    def names(self) -> tuple[str, ...]:
        """The operand names in order, the prediction first."""
        return tuple(operand.name for operand in self.operands)

    @property
    def differentiable(self) -> tuple[str, ...]:
        """The names of the differentiable operands, in order."""
        return tuple(operand.name for operand in self.operands if operand.differentiable)

    @property
    def trained(self) -> tuple[str, ...]:
        """The names of the operands that a training step differentiates."""
        return self.differentiable[:1]

    @property
    def promoted(self) -> tuple[str, ...]:
        """The names of the operands that determine the loss's dtype."""
        return tuple(o.name for o in self.operands if o.kind == FLOATING and not o.shared)

    def loss_shape(self, shapes: Sequence[Shape]) -> Shape:
        """Return the unreduced loss's shape: the broadcast one, unless a unit has another."""
        return broadcast(shapes)

    def refused(self, shapes: Sequence[Shape]) -> str:
        """Return why the public function rejects operand shapes, or ``""``."""
        return ""

    def terms_in_sum(self, shape: Shape) -> int:
        """Return how many terms one unit's loss sums."""
        return 1

    @property
    def size_example(self) -> str:
        """An example size for errors."""
        return "any, such as 1024x1024"

    def takes(self, size: Shape) -> bool:
        """Tell whether a case may have this size."""
        return True

    def temporary_elements(self, shape: Shape) -> int:
        """Return the elements of the reference's largest tensor."""
        return math.prod(shape)

    def operations(self, shape: Shape, *, backward: bool) -> int:
        """Return the operations that limit a pass; 0 if memory does."""
        return 0

    @property
    def term_tensors(self) -> int:
        """Number of the oracle's float64 term tensors: loss, gradients and four intermediates."""
        return 5 + len(self.differentiable) if self.terms else 0

    @property
    def domains(self) -> dict[str, Domain]:
        """The domain of each operand, by name."""
        return {operand.name: operand.domain for operand in self.operands}

    def branch_line(self, *others: Tensor) -> tuple[Tensor, Tensor]:
        """Return intercept and slope of the branch coordinate over the prediction."""
        zeros = others[0].new_zeros(torch.broadcast_tensors(*others)[0].shape)
        intercept = self.branch_coordinate(zeros, *others)
        return intercept, self.branch_coordinate(zeros + 1, *others) - intercept

    def input_at(self, coordinate: Tensor | float, *others: Tensor) -> Tensor:
        """Return a prediction with this branch coordinate, or another inside the domain."""
        intercept, slope = self.branch_line(*others)
        found: Tensor = (coordinate - intercept) / slope
        domain = self.operands[0].domain
        return found if domain.is_real else domain.of_draws(found)


@dataclass(frozen=True, kw_only=True)
class LossSpec(Spec):
    """An elementwise loss of operands that broadcast."""

    unit: ClassVar[Unit] = ELEMENT
    calls: Calls
    """The calls of the public functions."""

    def refused(self, shapes: Sequence[Shape]) -> str:
        """Return ``""`` also if the shapes do not broadcast."""
        rules = self.calls.shapes
        return str(rules.wrong(self.name, self.names, shapes) or "") if rules else ""
