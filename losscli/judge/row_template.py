"""The file that ``losscli new`` writes for a loss over rows: C++, CUDA and its own backward."""

from __future__ import annotations

import re
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


def render_rows(stem: str, loss: str, *, cuda: bool) -> str:
    """Return the source of the file: see ``template.render``."""
    formula = ROW_FORMULAS[loss]
    rows = ", ".join(formula.rows)
    per_row = [name for name in (formula.label, formula.number) if name]
    words = {
        "STEM": stem,
        "LOSS": loss,
        "FUNCTION": function_of(loss),
        "SAID": formula.said,
        "PRELUDE": PRELUDE,
        "VALUE": formula.value,
        "SLOPES": formula.slopes,
        "TORCH": formula.torch,
        "NAMED": ", ".join([*formula.rows, *per_row]),
        "UNPACK": rows if len(formula.rows) > 1 else f"{rows},",
        "TAKEN": "".join(
            f"    {name} = {of}\n"
            for name, of in ((formula.label, "labels"), (formula.number, "numbers"))
            if name
        ),
        "ARGUMENTS": formula.arguments,
        "ROWS": rows if len(formula.rows) > 1 else f"{rows},",
        "LABELS": formula.label or "None",
        "NUMBERS": formula.number or "None",
        "PARAMETERS": ", ".join(f"float({name})" for name in formula.parameters),
        "KEPT": formula.kept or "None",
        "DIMENSION": str(formula.dimension),
        "REDUCTION": formula.reduction,
        "CUDA": _CUDA if cuda else "",
        "LOAD_CUDA": _LOAD_CUDA if cuda else _NO_CUDA,
        "DEVICE": '"cuda" if torch.cuda.is_available() else "cpu"' if cuda else '"cpu"',
    }
    text = _FILE
    for word in ("CUDA", "LOAD_CUDA"):  # which have words of their own
        text = text.replace(f"@{word}@", words[word])
    return re.sub("@([A-Z_]+)@", lambda found: words[found[1]], text)


def function_of(loss: str) -> str:
    """Return the name of the function that the file defines."""
    function = ROW_FORMULAS[loss].function.replace("NAME", loss)
    return function or f"{loss}_loss"


PRELUDE = """\
EVERYWHERE inline double at_least(double x, double least) { return x < least ? least : x; }
EVERYWHERE inline double sign(double x) { return (x > 0) - (x < 0); }  // of NaN 0, as torch's

// 0 times infinity is 0, for what has no probability has no part in a sum.
EVERYWHERE inline double times(double weight, double value) {
  return weight == 0 ? 0 : weight * value;
}

// The logarithm of a mixture of two probabilities, from theirs.
EVERYWHERE inline double mixed(double a, double b, double beta) {
  const double m = beta * exp(b) + (1 - beta) * exp(a);
  return m == 0 ? 0 : log(m);
}

// log(softmax(x / t)) of an operand of a row.
template <typename Row>
struct LogSoftmax {
  const Row& row;
  int operand;
  double t, top, log_sum;

  EVERYWHERE LogSoftmax(const Row& row, int operand, double t) : row(row), operand(operand), t(t) {
    top = row.max([&](int64_t i) { return row.at(operand, i) / t; });
    log_sum = log(row.sum([&](int64_t i) { return exp(row.at(operand, i) / t - top); }));
  }

  EVERYWHERE double operator()(int64_t i) const { return row.at(operand, i) / t - top - log_sum; }
};"""

KERNELS = r'''@CUDA@

@functools.cache
def kernels(device):
    """Compile the kernels for a type of device, once."""
@LOAD_CUDA@
    # OpenMP is torch's own: its pragmas are compiled (-fopenmp), and no second library is linked.
    # Without the implicit headers it compiles in half of the time.
    return load_inline(
        "@STEM@_cpu",
        cpp_sources=[FORMULA + CPU],
        functions=["forward", "backward"],
        no_implicit_headers=True,
        extra_cflags=["-O3", "-march=native", "-fopenmp"],
    )
'''
"""What compiles the kernels of a template."""

_FILE = '''\
"""@SAID@

Judge it with `losscli judge @STEM@.py --loss @LOSS@`.
What the judge calls is @FUNCTION@, near the end.
"""

import functools

import torch
from torch.utils.cpp_extension import load_inline

# The formula, once for all kernels, in double. A row gives at(operand, i), its length size, label,
# the number of its class, and target, another number of its own; sum, max and each go over its
# elements, in one thread on the CPU and in all threads of a block on a GPU. p has the parameters.
FORMULA = r"""
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <cmath>
#include <vector>

#ifdef __CUDACC__
#define EVERYWHERE __host__ __device__
#else
#define EVERYWHERE
#endif

constexpr int kOperands = 3;  // The most that are rows.

@PRELUDE@

template <typename Row>
EVERYWHERE double loss_of(const Row& row, const double* p) {
@VALUE@
}

// Writes the derivatives of each operand, times g.
template <typename Row>
EVERYWHERE void slopes_of(const Row& row, const double* p, double g) {
@SLOPES@
}

struct Parameters {
  double p[4];
  explicit Parameters(const std::vector<double>& given) : p{} {
    for (size_t i = 0; i < given.size(); ++i) p[i] = given[i];
  }
};

// The row of a number, of contiguous matrices; out has null for gradients that nobody wants.
template <typename Row, typename scalar_t>
struct Rows {
  const scalar_t* x[kOperands] = {};
  scalar_t* out[kOperands] = {};
  const int64_t* labels = nullptr;
  const double* numbers = nullptr;
  int64_t size;

  Rows(const std::vector<at::Tensor>& rows, const at::Tensor& of_labels,
       const at::Tensor& of_numbers)
      : size(rows[0].size(1)) {
    for (size_t k = 0; k < rows.size(); ++k) x[k] = rows[k].template const_data_ptr<scalar_t>();
    if (of_labels.numel()) labels = of_labels.const_data_ptr<int64_t>();
    if (of_numbers.numel()) numbers = of_numbers.const_data_ptr<double>();
  }

  std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& rows,
                                    const std::vector<bool>& wanted) {
    std::vector<at::Tensor> made;
    for (size_t k = 0; k < rows.size(); ++k) {
      made.push_back(wanted[k] ? at::empty_like(rows[k]) : at::empty({0}, rows[k].options()));
      if (wanted[k]) out[k] = made[k].template mutable_data_ptr<scalar_t>();
    }
    return made;
  }

  EVERYWHERE Row row(int64_t number) const {
    Row made;
    for (int k = 0; k < kOperands; ++k) {
      made.x[k] = x[k] ? x[k] + number * size : nullptr;
      made.out[k] = out[k] ? out[k] + number * size : nullptr;
    }
    made.size = size;
    made.label = labels ? labels[number] : 0;
    made.target = numbers ? numbers[number] : 0;
    return made;
  }
};

// A number that is no class.
template <typename Row>
EVERYWHERE bool has_no_class(const Row& row) { return row.label < 0 || row.label >= row.size; }

using Tensors = std::vector<at::Tensor>;
"""

CPU = r"""
#include <ATen/Parallel.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

template <typename scalar_t>
struct CpuRow {
  const scalar_t* x[kOperands];
  scalar_t* out[kOperands];
  int64_t size, label;
  double target;

  double at(int operand, int64_t i) const { return static_cast<double>(x[operand][i]); }
  void write(int operand, int64_t i, double value) const {
    if (out[operand]) out[operand][i] = static_cast<scalar_t>(value);
  }
  template <typename F>
  double sum(F f) const {
    double total = 0;
    for (int64_t i = 0; i < size; ++i) total += f(i);
    return total;
  }
  template <typename F>
  double max(F f) const {
    double top = -INFINITY;
    for (int64_t i = 0; i < size; ++i) top = std::fmax(top, f(i));
    return top;
  }
  template <typename F>
  void each(F f) const {
    for (int64_t i = 0; i < size; ++i) f(i);
  }
};

at::Tensor forward(Tensors rows, at::Tensor labels, at::Tensor numbers, std::vector<double> p) {
  const Parameters parameters(p);
  at::Tensor loss = at::empty({rows[0].size(0)}, rows[0].options().dtype(at::kDouble));
  double* out = loss.mutable_data_ptr<double>();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, rows[0].scalar_type(), "forward", [&] {
    const Rows<CpuRow<scalar_t>, scalar_t> all(rows, labels, numbers);
    at::parallel_for(0, loss.numel(), 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const auto row = all.row(i);
        out[i] = has_no_class(row) ? NAN : loss_of(row, parameters.p);
      }
    });
  });
  return loss;
}

Tensors backward(at::Tensor incoming, Tensors rows, at::Tensor labels, at::Tensor numbers,
                 std::vector<double> p, std::vector<bool> wanted) {
  const Parameters parameters(p);
  Tensors gradients;
  const double* g = incoming.const_data_ptr<double>();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, rows[0].scalar_type(), "backward", [&] {
    Rows<CpuRow<scalar_t>, scalar_t> all(rows, labels, numbers);
    gradients = all.gradients(rows, wanted);
    at::parallel_for(0, incoming.numel(), 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        auto row = all.row(i);
        const bool wrong = has_no_class(row);
        if (wrong) row.label = 0;
        slopes_of(row, parameters.p, wrong ? NAN : g[i]);
      }
    });
  });
  return gradients;
}
"""
@KERNELS@

class Loss(torch.autograd.Function):
    """The loss of each row in float64, and what autograd has to know of it."""

    @staticmethod
    def forward(ctx, labels, numbers, p, *rows):
        ctx.save_for_backward(labels, numbers, *rows)
        ctx.p = p
        return kernels(rows[0].device.type).forward(rows, labels, numbers, p)

    @staticmethod
    def backward(ctx, incoming):
        # Contiguous once more: x.data = ... may have given an operand other strides since.
        labels, numbers, *rows = (operand.contiguous() for operand in ctx.saved_tensors)
        wanted = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():  # create_graph=True: this has to be differentiated once more
            loss = in_pytorch(rows, labels, numbers, ctx.p)
            needed = [x for x, want in zip(rows, wanted) if want]
            found = iter(torch.autograd.grad(loss, needed, incoming, create_graph=True))
            return (None, None, None, *(next(found) if want else None for want in wanted))
        run = kernels(rows[0].device.type).backward
        gradients = run(incoming.contiguous(), rows, labels, numbers, ctx.p, wanted)
        given = (x if want else None for x, want in zip(gradients, wanted))
        return (None, None, None, *given)


def times(weight, value):
    """Return the product, where 0 times infinity is 0."""
    return weight * torch.where(weight == 0, 0.0, value)


def mixed(a, b, beta):
    """Return the logarithm of a mixture of two probabilities, from theirs."""
    m = beta * b.exp() + (1 - beta) * a.exp()
    return torch.where(m == 0, 1.0, m).log()


def in_pytorch(rows, labels, numbers, p):
    """Return the loss of each row in PyTorch's own operations, which are slower."""
    @UNPACK@ = (x.double() for x in rows)
@TAKEN@\
@TORCH@


def of_rows(rows, labels, numbers, p, kept, dimension, reduction):
    """Return the loss of operands of any broadcastable shapes, strides and dtypes."""
    dtype = functools.reduce(torch.promote_types, [x.dtype for x in rows])
    # autograd differentiates all of this too: it sums the gradient of what was broadcast.
    rows = torch.broadcast_tensors(*[x.to(dtype) for x in rows])
    rows = [x.movedim(min(dimension, x.dim() - 1), -1) for x in rows]
    shape = rows[0].shape[:-1]
    if kept is not None:  # what other rows hold has no part in anything, be it NaN
        rows = [torch.where(kept.unsqueeze(-1), x, 0.0) for x in rows]
        labels = None if labels is None else torch.where(kept, labels, 0)
    of = rows[0]
    if labels is not None and of.device.type == "cpu" and labels.numel():
        if labels.min() < 0 or labels.max() >= of.shape[-1]:
            raise IndexError(f"a class is not one of {of.shape[-1]}")
    none = torch.empty(0, device=of.device)
    labels = none.long() if labels is None else labels.reshape(-1).long().contiguous()
    if numbers is None:
        numbers = none.double()
    else:
        numbers = numbers.expand(shape).reshape(-1).double().contiguous()
    flat = [x.reshape(shape.numel(), x.shape[-1]).contiguous() for x in rows]
    loss = Loss.apply(labels, numbers, p, *flat).view(shape)
    if kept is not None:
        loss = torch.where(kept, loss, 0.0)
    if reduction != "none":
        loss = loss.sum()
    if reduction == "mean":
        loss = loss / (shape.numel() if kept is None else kept.sum())
    return loss.to(dtype)


def @FUNCTION@(@ARGUMENTS@):
    """Takes what losscli's own loss of this name takes, with its defaults."""
    rows, given = (@ROWS@), [@PARAMETERS@]
    kept = @KEPT@
    return of_rows(rows, @LABELS@, @NUMBERS@, given, kept, @DIMENSION@, @REDUCTION@)


# Compiled on import, so that no call has to wait for a compiler; for other devices on first use.
kernels(@DEVICE@)
'''.replace("@KERNELS@", KERNELS)

_CUDA = '''
CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

constexpr int kThreads = 256;  // A power of two, for the tree below. A block has a row.

template <typename scalar_t>
struct CudaRow {
  const scalar_t* x[kOperands];
  scalar_t* out[kOperands];
  int64_t size, label;
  double target;

  __device__ double at(int operand, int64_t i) const { return static_cast<double>(x[operand][i]); }
  __device__ void write(int operand, int64_t i, double value) const {
    if (out[operand]) out[operand][i] = static_cast<scalar_t>(value);
  }
  // In the same order in every run, so every run gives the same bits.
  template <typename Join>
  __device__ double joined(double mine, Join join) const {
    __shared__ double shared[kThreads];
    __syncthreads();
    shared[threadIdx.x] = mine;
    for (int half = kThreads / 2; half; half /= 2) {
      __syncthreads();
      if (threadIdx.x < half)
        shared[threadIdx.x] = join(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    __syncthreads();
    return shared[0];
  }
  template <typename F>
  __device__ double sum(F f) const {
    double total = 0;
    for (int64_t i = threadIdx.x; i < size; i += kThreads) total += f(i);
    return joined(total, [](double a, double b) { return a + b; });
  }
  template <typename F>
  __device__ double max(F f) const {
    double top = -INFINITY;
    for (int64_t i = threadIdx.x; i < size; i += kThreads) top = fmax(top, f(i));
    return joined(top, [](double a, double b) { return fmax(a, b); });
  }
  template <typename F>
  __device__ void each(F f) const {
    for (int64_t i = threadIdx.x; i < size; i += kThreads) f(i);
  }
};

template <typename scalar_t>
__global__ void losses(Rows<CudaRow<scalar_t>, scalar_t> all, Parameters parameters, double* out) {
  const auto row = all.row(blockIdx.x);
  const double loss = has_no_class(row) ? NAN : loss_of(row, parameters.p);
  if (threadIdx.x == 0) out[blockIdx.x] = loss;
}

template <typename scalar_t>
__global__ void slopes(Rows<CudaRow<scalar_t>, scalar_t> all, Parameters parameters,
                       const double* g) {
  auto row = all.row(blockIdx.x);
  const bool wrong = has_no_class(row);
  if (wrong) row.label = 0;
  slopes_of(row, parameters.p, wrong ? NAN : g[blockIdx.x]);
}

at::Tensor forward(Tensors rows, at::Tensor labels, at::Tensor numbers, std::vector<double> p) {
  const c10::cuda::CUDAGuard guard(rows[0].device());
  const auto stream = c10::cuda::getCurrentCUDAStream();
  at::Tensor loss = at::empty({rows[0].size(0)}, rows[0].options().dtype(at::kDouble));
  if (!loss.numel()) return loss;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, rows[0].scalar_type(), "forward", [&] {
    const Rows<CudaRow<scalar_t>, scalar_t> all(rows, labels, numbers);
    losses<scalar_t><<<loss.numel(), kThreads, 0, stream>>>(
        all, Parameters(p), loss.mutable_data_ptr<double>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return loss;
}

Tensors backward(at::Tensor incoming, Tensors rows, at::Tensor labels, at::Tensor numbers,
                 std::vector<double> p, std::vector<bool> wanted) {
  const c10::cuda::CUDAGuard guard(rows[0].device());
  const auto stream = c10::cuda::getCurrentCUDAStream();
  Tensors gradients;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, rows[0].scalar_type(), "backward", [&] {
    Rows<CudaRow<scalar_t>, scalar_t> all(rows, labels, numbers);
    gradients = all.gradients(rows, wanted);
    if (!incoming.numel()) return;
    slopes<scalar_t><<<incoming.numel(), kThreads, 0, stream>>>(
        all, Parameters(p), incoming.const_data_ptr<double>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return gradients;
}
"""

# What Python calls of the CUDA source, as load_inline asks for it.
DECLARATIONS = r"""
#include <ATen/core/Tensor.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
using Tensors = std::vector<at::Tensor>;
at::Tensor forward(Tensors rows, at::Tensor labels, at::Tensor numbers, std::vector<double> p);
Tensors backward(at::Tensor incoming, Tensors rows, at::Tensor labels, at::Tensor numbers,
                 std::vector<double> p, std::vector<bool> wanted);
"""
'''

_LOAD_CUDA = """\
    if device == "cuda":
        return load_inline(
            "@STEM@_cuda",
            cpp_sources=[DECLARATIONS],
            cuda_sources=[FORMULA + CUDA],
            functions=["forward", "backward"],
            no_implicit_headers=True,
        )"""

_NO_CUDA = """\
    if device != "cpu":
        raise ValueError(f"there is no kernel for {device}: call it with operands of the CPU")"""
