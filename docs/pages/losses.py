"""The page of every loss, from its spec, its docstring and its reference."""

from __future__ import annotations

import inspect
import math

import torch

from docs.pages.svg import axis_over, chart, figure
from losscli.losses import (
    CLASS_INDICES,
    EVERY_ROW_LOSS,
    LOSSES,
    ROW,
    ROW_FORMS,
    Operand,
    Parameter,
    Spec,
)

STEPS = 121
REACH = 4.0
"""How far from zero a picture goes where the prediction may be any number."""
MARGIN = 0.1
"""How far from an end of the domain it stays, where a loss may be infinite."""
INTRODUCTION = """\
# Losses

Each loss is a function of `losscli.functional` and a module of `losscli.nn`. The heading has the
name for the command line and for configs. The pictures are computed from the reference, the plain
PyTorch formula that `losscli verify` takes as the oracle: the loss of one element, or of one row,
and its gradient for the prediction. All other operands keep the values below the picture.
"""


def page() -> str:
    """Return the page of all losses."""
    parts = [INTRODUCTION, "## Losses of each element\n"]
    parts += [_entry(spec) for spec in LOSSES.values()]
    parts += ["## Losses of each row\n"]
    parts += [_entry(spec) for spec in EVERY_ROW_LOSS.values() if not spec.form_of]
    return "\n".join(parts)


def _entry(spec: Spec) -> str:
    function = spec.loss.__name__
    parts = [
        f"### {spec.name}\n",
        _first_sentence(spec) + "\n",
        f"```text\n{spec.formula}\n```\n",
        picture(spec),
        f"Function: {{py:func}}`losscli.functional.{function}`; "
        f"module: {{py:class}}`losscli.nn.{spec.module.__name__}`; "
        f"reductions: {', '.join(f'`{name}`' for name in spec.reductions)}.\n",
        "| operand | what it is | values | gradient |\n| --- | --- | --- | --- |",
        *map(_operand_row, spec.operands),
        "",
    ]
    if spec.parameters:
        parts += [
            "| parameter | what it is | values | default |\n| --- | --- | --- | --- |",
            *map(_parameter_row, spec.parameters),
            "",
        ]
    if spec.unit == ROW:
        forms = [name for name in ROW_FORMS if name == spec.name or spec.name in name]
        chosen = [name for name in forms if ROW_FORMS[name].loss.__name__ == function]
        parts.append(f"Names of its forms: {', '.join(f'`{name}`' for name in chosen)}.\n")
    else:
        parts.append(f"With a weight: `weighted_{spec.name}`.\n")
    return "\n".join(parts)


def _first_sentence(spec: Spec) -> str:
    """Return the first paragraph of the docstring, with the source where it names one."""
    paragraph = inspect.cleandoc(spec.loss.__doc__ or "").split("\n\n")[0]
    return " ".join(paragraph.replace("``", "`").split())


def _operand_row(operand: Operand) -> str:
    name = f"`{operand.name}`" + (", optional" if operand.optional else "")
    gradient = "yes" if operand.differentiable and operand.kind == "floating" else "no"
    cells = (name, operand.description or operand.kind, operand.domain.name, gradient)
    return f"| {' | '.join(cells)} |"


def _parameter_row(parameter: Parameter) -> str:
    cells = (parameter.description, parameter.domain, f"{parameter.default:g}")
    return f"| `{parameter.name}` | {' | '.join(cells)} |"


def picture(spec: Spec) -> str:
    """Return the chart of the loss and of its gradient over the prediction."""
    over, operands, told = _over_rows(spec) if spec.unit == ROW else _over_elements(spec)
    parameters = {parameter.name: parameter.default for parameter in spec.parameters}
    varied = operands[0].requires_grad_()
    optional = [None] * (len(spec.operands) - len(operands))
    found = spec.reference(*operands, *optional, reduction="none", **parameters)
    value = found[0] if isinstance(found, tuple) else found
    (gradient,) = torch.autograd.grad(value.sum(), varied)
    if spec.unit == ROW:
        gradient = gradient[:, 0]
    x = over.tolist()
    lines = [
        ("loss", list(zip(x, value.detach().tolist(), strict=True))),
        ("gradient", list(zip(x, gradient.tolist(), strict=True))),
    ]
    heights = [y for _, points in lines for _, y in points if math.isfinite(y)]
    name = spec.operands[0].name + ("[0]" if spec.unit == ROW else "")
    drawn = chart(
        f"{spec.name}: the loss and its gradient over {name}",
        axis_over(name, x),
        axis_over("", heights),
        lines,
    )
    settings = [f"{parameter} = {value:g}" for parameter, value in parameters.items()]
    return figure(drawn, "With " + ", ".join(told + settings) + "." if told else "")


def _over_elements(spec: Spec) -> tuple[torch.Tensor, list[torch.Tensor], list[str]]:
    """Return the predictions of a picture, all operands, and what the others are."""
    domain = spec.operands[0].domain
    low, high = max(domain.low, -REACH), min(domain.high, REACH)
    low, high = (
        low if low == -REACH else low + MARGIN,
        high if high == REACH else high - MARGIN,
    )
    x = torch.linspace(low, high, STEPS, dtype=torch.float64)
    operands, told = [x.clone()], []
    for operand in spec.operands[1:]:
        value = 0.25 if operand.name == "quantile" else operand.domain.at_least_loss
        told.append(f"{operand.name} = {value:g}")
        operands.append(torch.full_like(x, value))
    return x, operands, told


def _over_rows(spec: Spec) -> tuple[torch.Tensor, list[torch.Tensor], list[str]]:
    """Return the same for rows of three, of which the first element of the prediction varies."""
    domain = spec.operands[0].domain
    low, high = max(domain.low, -REACH), min(domain.high, REACH)
    x = torch.linspace(low, high, STEPS, dtype=torch.float64)
    rest = torch.tensor([0.5, -0.5] if domain.is_real else [-0.5, -1.5], dtype=torch.float64)
    operands = [torch.cat((x[:, None], rest.expand(STEPS, 2)), 1)]
    told = [f"{spec.operands[0].name} = [x, {', '.join(f'{each:g}' for each in rest.tolist())}]"]
    others = iter(([1.0, 0.0, -1.0], [-1.0, 1.0, 0.5]))
    for operand in spec.operands[1:]:
        if operand.optional:
            continue
        shape = operand.shape((STEPS, 3))
        if operand.kind == CLASS_INDICES:
            numbers = torch.arange(math.prod(shape[1:])).view(shape[1:])
            operands.append(numbers.expand(shape))
            told.append(f"{operand.name} = {numbers.tolist()}")
        elif operand.domain.is_real and not operand.domain.discrete:
            row = torch.tensor(next(others)[: shape[1]], dtype=torch.float64)
            row = operand.domain.of_draws(row)
            operands.append(row.expand(shape))
            told.append(f"{operand.name} = [{', '.join(f'{each:.3g}' for each in row.tolist())}]")
        else:
            operands.append(torch.ones(STEPS, dtype=torch.float64))
            told.append(f"{operand.name} = 1")
    return x, operands, told
