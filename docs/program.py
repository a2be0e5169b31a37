"""Tables of what the program says of its losses, checks, verdicts, jobs and isolation."""

from __future__ import annotations

import ast
import inspect
from itertools import zip_longest

from docs.markdown import table
from losscli.doctor.attacks import ATTACKS
from losscli.implementations.sandbox.isolation_parts import PARTS
from losscli.judge.job import Job
from losscli.losses import ELEMENT, EVERY_ROW_LOSS, LOSSES
from losscli.reasons import CODES, FACETS, Code, Facet
from losscli.verify.checks import CHECKS
from losscli.verify.checks.check import Cost


def functions(unit: str) -> str:
    """Return a row per public function of the losses of each element, or of each row."""
    rows: dict[str, list[str]] = {}
    for spec in (LOSSES if unit == ELEMENT else EVERY_ROW_LOSS).values():
        optional = [operand.name for operand in spec.operands if operand.optional]
        settings = [*optional, *(parameter.name for parameter in spec.parameters)]
        formula = spec.formula.replace("|", "\\|")
        rows.setdefault(
            spec.function_name,
            [
                f"`{spec.function_name}`",
                f"`{spec.module.__name__}`",
                f"`{formula}`",
                ", ".join(f"`{name}`" for name in settings),
            ],
        )
    return table(["function", "module", f"the loss of each {unit}", "settings"], [*rows.values()])


def walls() -> str:
    """Return a row per part of the judge's isolation: what it refuses, and what it is made of."""
    rows = []
    for part in PARTS:
        tried = "; ".join(attack.tries for attack in ATTACKS if attack.part == part.name)
        made_of = (part.by, part.without or "open", part.on_cuda or part.by)
        rows.append([part.name, tried, *made_of])
    return table(["part", "what a file tries", "with namespaces", "without", "on a GPU"], rows)


FACET_MEANS: dict[Facet, str] = {
    "value": "the loss at ordinary values, on each branch of the formula",
    "gradient": "each gradient, for grad_output 1 and others",
    "sizes": "sizes around those at which kernels switch code paths, also 0 and 1",
    "extreme_values": "logits of 100 and beyond, ties, ignored rows; NaN, infinities, subnormals",
    "parameters": "other parameters than the defaults; an accepted parameter must not be ignored",
    "reductions": "reductions other than the usual one",
    "dtypes": "dtypes other than its own",
    "layouts": "strides, slices, broadcasts, targets of other dtypes",
    "streams_and_graphs": "side streams and CUDA graphs; needs a GPU",
    "repeated_backward": "retain_graph, and gradients that accumulate in .grad",
    "second_derivatives": "create_graph",
    "inputs": "overwritten inputs, class indices out of range",
    "global_state": "flags, seeds, modes, functions, environment variables",
    "determinism": "bitwise equal results in every run",
    "memory": "reads and writes out of bounds, uninitialised memory, leaks",
}


def facets() -> str:
    """Return a row per facet of a verdict: what is looked at, and by which checks."""
    rows = []
    for facet in FACETS:
        judged = (c for c in CHECKS.values() if c.facet == facet and c.cost != Cost.UNJUDGED)
        names = [f"`{check.name}`" for check in judged]
        rows.append([facet.replace("_", " "), FACET_MEANS[facet], ", ".join(names)])
    return table(["facet", "what is tested", "checks"], rows)


def jobs() -> str:
    """Return a row per key of a job, with the docstring of its field."""
    lines = ast.parse(inspect.getsource(Job)).body[0].body  # type: ignore[attr-defined]
    rows = []
    for field, text in zip_longest(lines, lines[1:]):
        if isinstance(field, ast.AnnAssign):
            told = (
                inspect.cleandoc(ast.literal_eval(text.value)) if isinstance(text, ast.Expr) else ""
            )
            rows.append(
                [f"`{ast.unparse(field.target)}`", " ".join(told.replace("``", "`").split())]
            )
    return table(["key", "value"], rows)


def reasons() -> str:
    """Return a row per code of a verdict's reason."""
    rows = [[code, code.word, code.meaning, code.advice] for code in Code if code in CODES]
    return table(["code", "verdict", "what happened", "what to do"], rows)


def checks() -> str:
    """Return a row per check: what it tests, as its docstring says, and what it catches."""
    rows = []
    for name, check in CHECKS.items():
        title, *more = inspect.cleandoc(check.judge.__doc__ or "").split("\n\n")[:2]
        text = " ".join([title.removeprefix("Check "), *more]).replace("``", "`")
        rows.append([f"`{name}`", " ".join(text.split()), check.catches])
    return table(["check", "what it tests", "what it catches"], rows)
