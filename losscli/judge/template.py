"""The file that ``losscli new`` writes: a loss with a C++ kernel, a CUDA kernel and a backward.

The folder ``templates`` has its text. A line ``@PART@`` there stands for another file of it, and
``@WORD@`` for what differs from loss to loss.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from losscli.errors import UsageError
from losscli.judge.row_formulas import ROW_FORMULAS


@dataclass(frozen=True)
class Formula:
    """What differs from loss to loss in the file."""

    said: str
    """The formula as a person writes it, with x for the input and y for the target."""
    parameter: str
    """The name of its parameter; empty where it has none."""
    default: str
    value: str
    """The C++ that returns the loss of one element, from x, y and p, the parameter."""
    slopes: str
    """The C++ that returns its derivative by x, or by y where ``of_target``."""
    derivatives: str
    """The Python that returns both derivatives, from x, y and p."""


FORMULAS = {
    "smooth_l1": Formula(
        said="0.5 (x - y)^2 / beta where |x - y| < beta, else |x - y| - 0.5 beta",
        parameter="beta",
        default="1.0",
        value="""\
  const T d = x > y ? x - y : y - x, beta = static_cast<T>(p);
  return d < beta ? T(0.5) * d * (d / beta) : d - T(0.5) * beta;""",
        slopes="""\
  const T d = x - y, beta = static_cast<T>(p);
  // With beta = 0 the slope at d = 0 is 0; NaN stays NaN.
  const T sign = d > T(0) ? T(1) : d < T(0) ? T(-1) : d;
  const T slope = (d < T(0) ? -d : d) < beta ? d / beta : sign;
  return of_target ? -slope : slope;""",
        derivatives="""\
    d = x - y
    slope = torch.where(d.abs() < p, d / max(p, 1e-30), d.sign())
    return slope, -slope""",
    ),
    "mse": Formula(
        said="(x - y)^2",
        parameter="",
        default="",
        value="""\
  const T d = x - y;
  return d * d;""",
        slopes="""\
  const T slope = T(2) * (x - y);
  return of_target ? -slope : slope;""",
        derivatives="""\
    slope = 2 * (x - y)
    return slope, -slope""",
    ),
    "hinge": Formula(
        said="max(margin - x y, 0)",
        parameter="margin",
        default="1.0",
        value="""\
  // In double: near the kink, the rounding of the margin to float would be most of the loss.
  const double rest = p - static_cast<double>(x) * y;
  return rest < 0 ? T(0) : static_cast<T>(rest);  // NaN stays NaN""",
        slopes="""\
  // The gradient passes at the kink, as that of torch.clamp does.
  return p - static_cast<double>(x) * y >= 0 ? -(of_target ? x : y) : T(0);""",
        derivatives="""\
    passes = p - x * y >= 0
    return torch.where(passes, -y, 0.0), torch.where(passes, -x, 0.0)""",
    ),
}


def template_path(name: str) -> Path:
    """Return the path of the file for a name, which may have a directory and ``.py``.

    Raises:
        UsageError: Python could not import a file of that name.
    """
    path = Path(name if name.endswith(".py") else f"{name}.py")
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", path.stem):
        raise UsageError(
            f"'{path.stem}' cannot name a file of Python. Write letters, digits and _, a letter "
            "first."
        )
    return path


def render(stem: str, loss: str, *, cuda: bool) -> str:
    """Return the source of the file.

    Args:
        stem: of its name.
        loss: one of FORMULAS, or of ROW_FORMULAS.
        cuda: whether it has a CUDA kernel.
    """
    kind, words = ("rows", _of_rows(loss)) if loss in ROW_FORMULAS else ("elementwise", _of(loss))
    gpu = '"cuda" if torch.cuda.is_available() else "cpu"'
    words |= {"STEM": stem, "LOSS": loss, "DEVICE": gpu if cuda else '"cpu"'}
    text = part(kind)
    for name, content in (  # each may hold the next
        ("ROWS_FUNCTIONS", part("rows_functions")),
        ("KERNELS", part("kernels")),
        ("CUDA", part(f"{kind}_cuda") if cuda else ""),
        ("LOAD_CUDA", part("load_cuda" if cuda else "no_cuda")),
    ):
        text = text.replace(f"@{name}@\n", content)
    return re.sub("@([A-Z_]+)@", lambda found: words[found[1]], text)


def part(name: str) -> str:
    """Return a file of the templates."""
    return files("losscli.judge").joinpath("templates", f"{name}.txt").read_text(encoding="utf-8")


def _of(loss: str) -> dict[str, str]:
    """Return the words of a loss of elements."""
    formula = FORMULAS[loss]
    named = formula.parameter
    return {
        "SAID": formula.said,
        "VALUE": formula.value,
        "SLOPES": formula.slopes,
        "DERIVATIVES": formula.derivatives,
        "PARAMETER": f", {named}={formula.default}" if named else "",
        "GIVEN": f"float({named})" if named else "0.0",
    }


def _of_rows(loss: str) -> dict[str, str]:
    """Return the words of a loss over rows."""
    formula = ROW_FORMULAS[loss]
    per_row = {formula.label: "labels", formula.number: "numbers"}
    per_row.pop("", None)
    rows = ", ".join(formula.rows) + ("," if len(formula.rows) == 1 else "")
    return {
        "FUNCTION": function_of(loss),
        "SAID": formula.said,
        "VALUE": formula.value,
        "SLOPES": formula.slopes,
        "TORCH": formula.torch,
        "TAKEN": "".join(f"    {name} = {of}\n" for name, of in per_row.items()),
        "ARGUMENTS": formula.arguments,
        "ROWS": rows,
        "LABELS": formula.label or "None",
        "NUMBERS": formula.number or "None",
        "PARAMETERS": ", ".join(f"float({name})" for name in formula.parameters),
        "KEPT": formula.kept or "None",
        "DIMENSION": str(formula.dimension),
        "REDUCTION": formula.reduction,
    }


def function_of(loss: str) -> str:
    """Return the name of the function that the file defines."""
    function = ROW_FORMULAS[loss].function.replace("NAME", loss)
    return function or f"{loss}_loss"
