"""The file that ``losscli new`` writes: a loss in PyTorch, in Triton, or in C++ and CUDA.

``@WORD@`` in the texts of ``templates`` stands for the loss's name, parameter or formula.
"""

import ast
import re
from importlib.resources import files
from pathlib import Path
from typing import Literal

from losscli.errors import UsageError
from losscli.losses import LOSSES

Template = Literal["torch", "triton", "cpp"]
STARTS = ("smooth_l1", "mse", "hinge", "huber", "l1")
"""Losses of two operands and at most one parameter, whose formula is exact as written."""
_FUNCTIONS = {
    "TORCH": {"abs": "torch.abs", "where": "torch.where"},
    "TRITON": {"abs": "tl.abs", "where": "tl.where"},
    "CPP": {"abs": "absolute", "where": "chosen"},
}


def template_path(name: str) -> Path:
    """Return the path of a file, named with or without ``.py``; UsageError if invalid."""
    path = Path(name if name.endswith(".py") else f"{name}.py")
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", path.stem):
        text = f"'{path.stem}' cannot name a file of Python."
        raise UsageError(f"{text} Write letters, digits and _, a letter first.")
    return path


def render(stem: str, loss: str, template: Template = "cpp", *, cuda: bool = True) -> str:
    """Return the source of the file ``stem``; ``loss`` is one of STARTS, ``cuda`` is for C++."""
    spec = LOSSES[loss]
    parameter = next(iter(spec.parameters), None)
    gpu = '"cuda" if torch.cuda.is_available() else "cpu"'
    words = {
        "STEM": stem,
        "LOSS": loss,
        "SAID": spec.formula,
        "NAME": parameter.name if parameter else "unused",
        "PARAMETER": f", {parameter.name}={parameter.default}" if parameter else "",
        "GIVEN": f"float({parameter.name})" if parameter else "0.0",
        "DEVICE": gpu if cuda else '"cpu"',
        **{kind: _expression(spec.formula, names) for kind, names in _FUNCTIONS.items()},
    }
    text = _part(template)
    text = text.replace("@CUDA@\n", _part("cpp_cuda") if cuda else "")
    text = text.replace("@LOAD_CUDA@\n", _part("cpp_load_cuda" if cuda else "cpp_no_cuda"))
    return re.sub("@([A-Z_]+)@", lambda found: words[found[1]], text)


def _part(name: str) -> str:
    return files("losscli.judge").joinpath("templates", f"{name}.txt").read_text(encoding="utf-8")


def _expression(formula: str, functions: dict[str, str]) -> str:
    """Return a spec's formula as code, with calls for absolute values and choices."""
    python = re.sub(r"\|([^|]+)\|", r"abs(\1)", formula).replace("^", "**")
    code = _Written(functions).visit(ast.parse(python, mode="eval")).body
    if isinstance(code, ast.Call) and len(code.args) > 1:
        arguments = ",\n        ".join(map(ast.unparse, code.args))
        return f"{ast.unparse(code.func)}(\n        {arguments})"
    return ast.unparse(code)


class _Written(ast.NodeTransformer):
    def __init__(self, functions: dict[str, str]) -> None:
        self.functions = functions
        self.test: ast.expr | None = None
        """The condition of the branch."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        # Autograd multiplies the derivative of the other branch by 0: it must be finite.
        is_torchs = self.test is not None and self.functions is _FUNCTIONS["TORCH"]
        if isinstance(node.op, ast.Pow) and ast.unparse(node.right) == "2":
            if self.test and is_torchs:
                node.left = self._call("where", self.test, node.left, ast.Constant(0.0))
                return node
            return ast.BinOp(node.left, ast.Mult(), node.left)
        if isinstance(node.op, ast.Div) and is_torchs:
            node.right = ast.BoolOp(ast.Or(), [node.right, ast.Constant(1.0)])
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        test = self.test = self.visit(node.test)
        body = self.visit(node.body)
        self.test = None
        return self._call("where", test, body, self.visit(node.orelse))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        assert isinstance(node.func, ast.Name)
        if node.func.id != "max":
            return self._call(node.func.id, *node.args)
        value, least = node.args  # NaN stays NaN, and a gradient passes where both are equal
        return self._call("where", ast.Compare(value, [ast.Lt()], [least]), least, value)

    def _call(self, name: str, *arguments: ast.expr) -> ast.Call:
        return ast.Call(ast.Name(self.functions[name]), [*arguments], [])
