"""Imports go downward only, and commands that answer at once import no torch."""

import ast
import functools
import graphlib
from pathlib import Path

import pytest

import losscli

ROOT = Path(losscli.__file__).parent

PACKAGES = (
    *("losscli.__main__", "losscli.pytest_plugin", "losscli.cli"),
    "losscli.render.html",
    "losscli.report",
    "losscli.render",
    "losscli.views",
    "losscli.doctor",
    "losscli.judge",
    "losscli.profile",
    "losscli.bench",
    "losscli.verify",
    "losscli.truth",
    "losscli.compare",
    "losscli.config",
    "losscli.implementations",
    "losscli.patching",
    *("losscli.nn", "losscli.functional"),
    "losscli.sharded",
    "losscli.linear",
    "losscli.operators",
    "losscli.build",
    "losscli.runs",
    "losscli.cases",
    "losscli.losses",
    "losscli.ranks",
    "losscli.machine",
    "losscli.processes",
    "losscli.console",
    "losscli.files",
    "losscli.reasons",
    *("losscli.units", "losscli.errors"),
    "losscli",
)
"""From the top down: each imports itself and what is below it. A module belongs to the longest of
these that begins its name."""

WITH_TORCH = (
    *("losscli.bench", "losscli.verify", "losscli.truth", "losscli.profile.bare"),
    *(
        f"losscli.implementations.{module}"
        for module in (
            *(
                "binding",
                "cuda_cache",
                "gpu_requests",
                "memory_requests",
                "passes",
                "process_state",
                "requests",
                "timer",
            ),
            "local",
            *("sandbox", "subject"),
        )
    ),
    *(
        f"losscli.judge.{module}"
        for module in (
            *("against_loss", "against_model", "canary", "cause", "difference"),
            *("first_look", "home_ground", "judgement", "judging", "loss_of_file"),
            "recognition",
            "times",
        )
    ),
    *("losscli.operators", "losscli.functional", "losscli.nn", "losscli.linear"),
    *("losscli.sharded", "losscli.patching.functional"),
    *(f"losscli.patching.{module}" for module in ("lazy_logits", "transformers", "trl")),
    *("losscli.ranks.group", "losscli.ranks.shards", "losscli.implementations.wholes"),
)
"""What may import torch at module level; all else answers without it."""

MODULES = {
    ".".join(("losscli", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(ROOT.rglob("*.py"))
}


AT_ONCE, LATER, NEVER = "at once", "when a function is called", "for types alone"
"""When a module is imported by another."""


def within(module, prefix):
    return module == prefix or module.startswith(f"{prefix}.")


def layer(module):
    """Return how far down a module lies."""
    return max((len(p), depth) for depth, p in enumerate(PACKAGES) if within(module, p))[1]


@functools.cache
def imports(module):
    """Return what a module imports, as pairs: the name, and when."""
    tree = ast.parse(MODULES[module].read_text())
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    found = []

    def visit(node, when):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.extend((alias.name, when) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    parts = package.split(".")[: len(package.split(".")) - child.level + 1]
                    base = ".".join([*parts, base] if base else parts)
                for alias in child.names:
                    name = f"{base}.{alias.name}"
                    found.append((name if name in MODULES else base, when))
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            visit(child, LATER if inside else NEVER if typing else when)

    visit(tree, AT_ONCE)
    return found


def reaches(package, module, seen):
    """Return the chain of imports at module level that leads to a package, or None."""
    seen.add(module)
    for name, when in imports(module):
        if when == AT_ONCE and within(name, package):
            return [module, package]
        if when == AT_ONCE and name in MODULES and name not in seen:
            chain = reaches(package, name, seen)
            if chain:
                return [module, *chain]
    return None


def test_imports_go_downward():
    upward = {
        (module, name)
        for module in MODULES
        for name, when in imports(module)
        if when != NEVER and within(name, "losscli") and layer(name) < layer(module)
        # losscli.load() is offered by the package itself, and imports what it needs when called.
        if when == AT_ONCE or module != "losscli"
    }
    assert upward == set()


@pytest.mark.parametrize(
    ("package", "other"),
    [("losscli.bench", "losscli.verify"), ("losscli.bench", "losscli.compare")],
)
def test_packages_of_one_layer_do_not_import_each_other(package, other):
    found = {
        (module, name)
        for ours, theirs in ((package, other), (other, package))
        for module in MODULES
        if within(module, ours)
        for name, when in imports(module)
        if when != NEVER and within(name, theirs)
    }
    assert found == set()


def test_no_module_imports_itself_through_others():
    """At whatever time, also for types. The error names the modules of a circle."""
    # losscli.load() imports what it needs when it is called, so that importing losscli is fast.
    graph = {m: {name for name, _ in imports(m)} - {"losscli"} for m in MODULES if m != "losscli"}
    graphlib.TopologicalSorter(graph).prepare()


def test_only_listed_modules_import_torch_at_the_top():
    without = [m for m in MODULES if not any(within(m, prefix) for prefix in WITH_TORCH)]
    assert [chain for m in without if (chain := reaches("torch", m, set()))] == []


@pytest.mark.parametrize(
    "command",
    ["main", "list", "bench", "verify", "build", "compare", "judge", "new", "doctor", "self_test"],
)
def test_help_and_what_is_wrong_with_a_config_wait_for_no_records(command):
    assert reaches("msgspec", f"losscli.cli.{command}", set()) is None


def test_import_walk_finds_torch():
    assert reaches("torch", "losscli.nn", set()) is not None


def test_every_module_has_a_layer_of_its_own():
    assert [m for m in MODULES if m != "losscli" and layer(m) == len(PACKAGES) - 1] == []


def test_only_subject_calls_an_implementation():
    calls = [
        (module, ast.unparse(node.func))
        for module in MODULES
        if not within(module, "losscli.implementations")
        for node in ast.walk(ast.parse(MODULES[module].read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr == "bind"
    ]
    assert [call for call in calls if not call[1].endswith("Subject.bind")] == []
