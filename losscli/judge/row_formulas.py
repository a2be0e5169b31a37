"""The formulas of losses over rows in the files that ``losscli new`` writes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RowFormula:
    """What differs from loss to loss over rows in the file."""

    said: str
    """The formula as a person writes it."""
    arguments: str
    """The arguments of the function, as its definition has them."""
    value: str
    """The C++ that returns the loss of a row."""
    slopes: str
    """The C++ that writes the derivatives of the loss of a row, times g."""
    torch: str
    """The Python that returns the loss of each row of matrices, in PyTorch's operations."""
    rows: tuple[str, ...] = ("input", "target")
    """The names of the operands that are rows."""
    label: str = ""
    """The name of the operand that has the number of a class for each row."""
    number: str = ""
    """The name of the operand that has another number for each row."""
    parameters: tuple[str, ...] = ()
    """The names of what the C++ finds in p, in this order."""
    kept: str = ""
    """The Python that tells which rows count; empty where all do."""
    dimension: int = -1
    """Along which a row lies."""
    reduction: str = "reduction"
    """The Python that says how rows are reduced."""
    function: str = ""
    """The name of the function where it is not that of the loss with ``_loss``."""


def _divergence(said: str, value: str, by_input: str, by_target: str, *more: str) -> RowFormula:
    """Return the formula of a loss of two sets of logits.

    Args:
        said: see :class:`RowFormula`.
        value: the C++ of a term of its sum, from a and b, the log-probabilities of both.
        by_input: that of the derivative of a term by a; what is the same share of every probability
            may be left out, for the probabilities of a row add up to 1.
        by_target: that by b.
        more: the Python of the terms, then the names of further parameters with their defaults.
    """
    torch, *others = more
    named = "".join(f", {other}" for other in others)
    softmaxes = """\
  const LogSoftmax<Row> log_p(row, 0, p[0]), log_q(row, 1, p[0]);
"""
    return RowFormula(
        said,
        f'input, target, *, temperature=1.0{named}, mask=None, reduction="mean"',
        f"""\
{softmaxes}\
  return row.sum([&](int64_t i) {{
    const double a = log_p(i), b = log_q(i);
    return {value};
  }});""",
        f"""\
{softmaxes}\
  const auto by_input = [&](int64_t i) {{
    const double a = log_p(i), b = log_q(i);
    return {by_input};
  }};
  const auto by_target = [&](int64_t i) {{
    const double a = log_p(i), b = log_q(i);
    return {by_target};
  }};
  const double of_input = row.sum(by_input), of_target = row.sum(by_target);
  row.each([&](int64_t i) {{
    row.write(0, i, g * (by_input(i) - exp(log_p(i)) * of_input) / p[0]);
    row.write(1, i, g * (by_target(i) - exp(log_q(i)) * of_target) / p[0]);
  }});""",
        f"""\
    a, b = (torch.log_softmax(x / p[0], -1) for x in (input, target))
    return ({torch}).sum(-1)""",
        parameters=("temperature", *(other.partition("=")[0] for other in others)),
        kept="mask",
        function="NAME",
    )


_PICKED = """\
  const LogSoftmax<Row> log_p(row, 0, {temperature});
  return {sign}log_p(row.label);"""
_PICKED_SLOPES = """\
  const LogSoftmax<Row> log_p(row, 0, {temperature});
  row.each([&](int64_t i) {{
    row.write(0, i, {sign}g * ((i == row.label) - exp(log_p(i))) / {temperature});
  }});"""
_DISTANCE = """\
  const auto distance = [&](int k) {
    return pow(row.sum([&](int64_t i) {
      return pow(fabs(row.at(0, i) - row.at(k, i) + p[2]), p[1]);
    }), 1 / p[1]);
  };
  const double near = distance(1), far = distance(2), above = near - far + p[0];
"""
_COSINE = """\
  const auto product = [&](int k, int l) {
    return row.sum([&](int64_t i) { return row.at(k, i) * row.at(l, i); });
  };
"""
_EMBEDDING = f"""\
{_COSINE}\
  const double xx = product(0, 0) + 1e-12, yy = product(1, 1) + 1e-12;
  const double c = product(0, 1) / (sqrt(xx) * sqrt(yy));
"""

ROW_FORMULAS = {
    "cosine_embedding": RowFormula(
        "1 - c where t = 1, max(0, c - margin) where t = -1, c = x . y / (|x| |y|)",
        'input1, input2, target, margin=0.0, *, reduction="mean"',
        f"""\
{_EMBEDDING}\
  const double rest = c - p[0];
  return row.target == 1 ? 1 - c : row.target == -1 ? (rest < 0 ? 0 : rest) : 0.0;""",
        f"""\
{_EMBEDDING}\
  const double sign = row.target == 1 ? -1.0 : row.target == -1 && !(c - p[0] < 0) ? 1.0 : 0.0;
  row.each([&](int64_t i) {{
    const double x = row.at(0, i), y = row.at(1, i), norms = sqrt(xx) * sqrt(yy);
    row.write(0, i, g * sign * (y / norms - c * x / xx));
    row.write(1, i, g * sign * (x / norms - c * y / yy));
  }});""",
        """\
    xx, yy = ((x * x).sum(-1) + 1e-12 for x in (input1, input2))
    c = (input1 * input2).sum(-1) / (xx.sqrt() * yy.sqrt())
    unlike = (c - p[0]).clamp_min(0)
    return torch.where(target == 1, 1 - c, torch.where(target == -1, unlike, 0.0))""",
        rows=("input1", "input2"),
        number="target",
        parameters=("margin",),
    ),
    "cosine_similarity": RowFormula(
        "1 - x . y / (max(|x|, eps) max(|y|, eps))",
        'x1, x2, *, eps=1e-8, reduction="mean"',
        f"""\
{_COSINE}\
  const double x = sqrt(product(0, 0)), y = sqrt(product(1, 1));
  return 1 - product(0, 1) / (at_least(x, p[0]) * at_least(y, p[0]));""",
        f"""\
{_COSINE}\
  const double x = sqrt(product(0, 0)), y = sqrt(product(1, 1)), dot = product(0, 1);
  const double norms = at_least(x, p[0]) * at_least(y, p[0]);
  // The gradient takes a norm below eps for a constant.
  const double by_x = x < p[0] ? 0 : dot / (norms * x * x);
  const double by_y = y < p[0] ? 0 : dot / (norms * y * y);
  row.each([&](int64_t i) {{
    row.write(0, i, -g * (row.at(1, i) / norms - by_x * row.at(0, i)));
    row.write(1, i, -g * (row.at(0, i) / norms - by_y * row.at(1, i)));
  }});""",
        """\
    norms = [torch.linalg.vector_norm(x, dim=-1).clamp_min(p[0]) for x in (x1, x2)]
    return 1 - (x1 * x2).sum(-1) / (norms[0] * norms[1])""",
        rows=("x1", "x2"),
        parameters=("eps",),
    ),
    "cross_entropy": RowFormula(
        "-log(softmax(x)[y])",
        'input, target, *, ignore_index=-100, reduction="mean"',
        _PICKED.format(temperature=1.0, sign="-"),
        _PICKED_SLOPES.format(temperature=1.0, sign="-"),
        """\
    return -torch.log_softmax(input, -1).gather(-1, target.unsqueeze(-1)).squeeze(-1)""",
        rows=("input",),
        label="target",
        kept="target != ignore_index",
        dimension=1,
        function="cross_entropy",
    ),
    "js_divergence": _divergence(
        "beta sum of q log(q / m) + (1 - beta) sum of p log(p / m), m = beta q + (1 - beta) p",
        "p[1] * times(exp(b), b - mixed(a, b, p[1]))"
        " +\n           (1 - p[1]) * times(exp(a), a - mixed(a, b, p[1]))",
        "(1 - p[1]) * times(exp(a), a - mixed(a, b, p[1]))",
        "p[1] * times(exp(b), b - mixed(a, b, p[1]))",
        "p[1] * times(b.exp(), b - mixed(a, b, p[1])) + (\n"
        "        (1 - p[1]) * times(a.exp(), a - mixed(a, b, p[1])))",
        "beta=0.5",
    ),
    "kl_divergence": _divergence(
        "sum of q log(q / p), p = softmax(input / T), q = softmax(target / T)",
        "times(exp(b), b - a)",
        "-exp(b)",
        "times(exp(b), b - a)",
        "times(b.exp(), b - a)",
    ),
    "multi_margin": RowFormula(
        "sum over i != y of max(0, margin - x[y] + x[i])^p / C",
        'input, target, p=1, margin=1.0, *, reduction="mean"',
        """\
  const double own = row.at(0, row.label);
  return row.sum([&](int64_t i) {
    const double rest = p[1] - own + row.at(0, i);
    return i != row.label && rest > 0 ? (p[0] == 1 ? rest : rest * rest) : 0.0;
  }) / row.size;""",
        """\
  const double own = row.at(0, row.label);
  const auto slope = [&](int64_t i) {
    const double rest = p[1] - own + row.at(0, i);
    return i != row.label && rest > 0 ? (p[0] == 1 ? 1.0 : 2 * rest) / row.size : 0.0;
  };
  const double others = row.sum(slope);
  row.each([&](int64_t i) { row.write(0, i, g * (i == row.label ? -others : slope(i))); });""",
        """\
    own = target.unsqueeze(-1)
    rest = p[1] - input.gather(-1, own) + input
    rest = torch.where(rest > 0, rest, 0.0).scatter(-1, own, 0.0)
    return (rest if p[0] == 1 else rest * rest).sum(-1) / input.shape[-1]""",
        rows=("input",),
        label="target",
        parameters=("p", "margin"),
    ),
    "nll": RowFormula(
        "-x[y]",
        'input, target, *, ignore_index=-100, reduction="mean"',
        "  return -row.at(0, row.label);",
        "  row.each([&](int64_t i) { row.write(0, i, i == row.label ? -g : 0.0); });",
        "    return -input.gather(-1, target.unsqueeze(-1)).squeeze(-1)",
        rows=("input",),
        label="target",
        kept="target != ignore_index",
        dimension=1,
    ),
    "reverse_kl_divergence": _divergence(
        "sum of p log(p / q), p = softmax(input / T), q = softmax(target / T)",
        "times(exp(a), a - b)",
        "times(exp(a), a - b)",
        "-exp(a)",
        "times(a.exp(), a - b)",
    ),
    "soft_cross_entropy": _divergence(
        "-(sum of q log(p)), p = softmax(input / T), q = softmax(target / T)",
        "-times(exp(b), a)",
        "-exp(b)",
        "-times(exp(b), a)",
        "-times(b.exp(), a)",
    ),
    "token_log_probs": RowFormula(
        "log(softmax(x / T)[y])",
        "logits, tokens, *, temperature=1.0",
        _PICKED.format(temperature="p[0]", sign=""),
        _PICKED_SLOPES.format(temperature="p[0]", sign=""),
        """\
    logs = torch.log_softmax(logits / p[0], -1)
    return logs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)""",
        rows=("logits",),
        label="tokens",
        parameters=("temperature",),
        reduction='"none"',
        function="token_log_probs",
    ),
    "total_variation": _divergence(
        "sum of |p - q| / 2, p = softmax(input / T), q = softmax(target / T)",
        "fabs(exp(a) - exp(b)) / 2",
        "sign(exp(a) - exp(b)) * exp(a) / 2",
        "-sign(exp(a) - exp(b)) * exp(b) / 2",
        "(a.exp() - b.exp()).abs() / 2",
    ),
    "triplet_margin": RowFormula(
        "max(0, d(a, p) - d(a, n) + margin), d(x, y) the p-norm of x - y + eps",
        'anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, reduction="mean"',
        f"""\
{_DISTANCE}\
  return above < 0 ? 0 : above;""",
        f"""\
{_DISTANCE}\
  const auto slope = [&](int k, double length, int64_t i) {{
    const double rest = row.at(0, i) - row.at(k, i) + p[2];
    return length == 0 || rest == 0 ? 0.0 : sign(rest) * pow(fabs(rest) / length, p[1] - 1);
  }};
  // The gradient passes where the two sides meet and not for NaN, as that of torch.clamp.
  const double active = above >= 0 ? g : 0;
  row.each([&](int64_t i) {{
    const double by_near = slope(1, near, i), by_far = slope(2, far, i);
    row.write(0, i, active * (by_near - by_far));
    row.write(1, i, -active * by_near);
    row.write(2, i, active * by_far);
  }});""",
        """\
    near, far = (torch.norm(anchor - x + p[2], p[1], -1) for x in (positive, negative))
    return (near - far + p[0]).clamp_min(0)""",
        rows=("anchor", "positive", "negative"),
        parameters=("margin", "p", "eps"),
    ),
}
