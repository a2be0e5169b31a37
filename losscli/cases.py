"""A case: one loss on one set of inputs. A config expands to cases; nothing here needs torch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase

from losscli.config.schema import Config, Exclude, Filter
from losscli.losses import LOSSES, LossSpec, Shape
from losscli.units import format_size

ITEM_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Case:
    """One loss on one set of inputs, on one device."""

    loss: str
    shape: Shape
    target_shape: Shape
    dtype: str
    reduction: str
    device: str
    """``cpu``, ``cuda`` or ``cuda:N``; never ``auto``."""
    params: Mapping[str, float]
    distribution: str
    seed: int
    scale: float = 1.0

    @property
    def spec(self) -> LossSpec:
        """The loss itself."""
        return LOSSES[self.loss]

    @property
    def elements(self) -> int:
        """Number of elements of the prediction."""
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return ITEM_BYTES[self.dtype]

    @property
    def name(self) -> str:
        """What errors, tolerances and tables call this case: ``mse 1024x1024 float32 mean``."""
        changed = [
            f"{p.name}={self.params[p.name]:g}"
            for p in self.spec.parameters
            if self.params[p.name] != p.default
        ]
        words = [self.loss, *changed, format_size(self.shape), self.dtype, self.reduction]
        if self.distribution != "uniform":
            words.append(self.distribution)
        return " ".join(words)

    def floor_bytes(self, pass_: str) -> int:
        """Return the fewest bytes that a pass must move through memory.

        Forward reads each operand once and writes the loss where it has a shape. Forward and
        backward writes the gradient of the prediction as well; without a reduction the incoming
        gradient is a tensor, known only later, so the operands are read again beside it.
        """
        operands = self.elements + math.prod(self.target_shape)
        elements = operands
        if self.reduction == "none":
            elements += self.elements
        if pass_ == "forward_backward":
            elements += self.elements
            if self.reduction == "none":
                elements += operands + self.elements
        return elements * self.item_bytes

    def to_json(self) -> dict[str, object]:
        """Return the fields of a result's ``case``."""
        return {
            "loss": self.loss,
            "shape": list(self.shape),
            "target_shape": list(self.target_shape),
            "dtype": self.dtype,
            "reduction": self.reduction,
            "device": self.device,
            "params": dict(self.params),
            "distribution": self.distribution,
            "seed": self.seed,
            "scale": self.scale,
        }


def asked_for(config: Config, case: Case, implementation: str, pass_: str) -> bool:
    """Tell whether a config wants this implementation and pass of one of its cases.

    No rule of ``exclude`` may match, and where there are filters one of them has to.
    """
    facts = {
        **case.params,
        "loss": case.loss,
        "size": case.shape,
        "dtype": case.dtype,
        "reduction": case.reduction,
        "distribution": case.distribution,
        "device": case.device.partition(":")[0],
        "implementation": implementation,
        "pass": pass_,
        "table": config.title,
    }
    if any(_excludes(rule, facts) for rule in config.exclude):
        return False
    return not config.filters or any(_keeps(filter, facts) for filter in config.filters)


def _excludes(rule: Exclude, facts: Mapping[str, object]) -> bool:
    wanted = {field.name: getattr(rule, field.name) for field in fields(rule)}
    return all(value is None or value == facts[name.rstrip("_")] for name, value in wanted.items())


def _keeps(filter: Filter, facts: Mapping[str, object]) -> bool:
    return all(
        _meets(facts.get(condition.axis), condition.values) != condition.negated
        for condition in filter
    )


def _meets(fact: object, values: tuple[object, ...]) -> bool:
    """Tell whether a fact is one of the values, or a text is as one of their patterns."""
    if isinstance(fact, str):
        return fact in values or any(fnmatchcase(fact, str(value)) for value in values)
    return fact in values


def expand(config: Config, device: str) -> Iterator[Case]:
    """Yield the cases of a config in the order written, on a device that is no longer ``auto``."""
    for choice, shape, dtype, reduction, distribution in itertools.product(
        config.losses, config.sizes, config.dtypes, config.reductions, config.inputs.distributions
    ):
        spec = LOSSES[choice.name]
        axes = [choice.parameters.get(p.name, (p.default,)) for p in spec.parameters]
        for values in itertools.product(*axes):
            yield Case(
                loss=spec.name,
                shape=shape,
                target_shape=spec.default_target_shape(shape),
                dtype=dtype,
                reduction=reduction,
                device=device,
                params=dict(zip((p.name for p in spec.parameters), values, strict=True)),
                distribution=distribution,
                seed=config.inputs.seed,
                scale=config.inputs.scale,
            )
