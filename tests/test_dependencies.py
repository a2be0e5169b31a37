"""A package that is missing, damaged or too old is one message with what to install."""

import sys
import tomllib
from pathlib import Path

import click
import msgspec
import pytest

from losscli import __main__, errors
from losscli.cli import dependencies, interrupts, main
from losscli.cli.dependencies import PACKAGES, TORCH, trouble
from tests.without_torch import run_after

ROOT = Path(__file__).parents[1]


def test_every_declared_package_is_known():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {requirement.partition(">=")[0] for requirement in project["dependencies"]}
    assert {*PACKAGES.values()} == declared


def test_missing_packages_are_named_before_the_command_begins(monkeypatch, capsys):
    for name in sorted(PACKAGES.keys() - {TORCH}):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            assert main.run(["bench", "--loss", "mse"]) == errors.EXIT_UNFIT
        told = f"the {PACKAGES[name]} package is missing. Run `pip install {PACKAGES[name]}`.\n"
        assert capsys.readouterr().err == f"losscli: error: {told}"
    for name in ("msgspec", "yaml"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(errors.UnfitError, match=r"the msgspec, PyYAML packages are missing\. Run "):
        dependencies.require()


def test_doctor_begins_without_a_package(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tabulate", None)
    assert main.run(["doctor", "--help"]) == errors.EXIT_OK


def lack(name: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named '{name}'", name=name)


NEEDS = (
    f"msgspec {msgspec.__version__} is damaged, or losscli needs another version: %s. "
    "Run `pip install --force-reinstall 'msgspec>=0.21'`."
)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (lack("yaml"), "the PyYAML package is missing. Run `pip install PyYAML`."),
        (lack("winreg"), "this Python has no module 'winreg'. Install a complete Python."),
        (lack("msgspec.new"), NEEDS % "ModuleNotFoundError: No module named 'msgspec.new'"),
        (
            ImportError("cannot import name 'new' from 'msgspec'", name="msgspec"),
            NEEDS % "ImportError: cannot import name 'new' from 'msgspec'",
        ),
        (
            AttributeError("module 'msgspec' has no attribute 'new'", name="new", obj=msgspec),
            NEEDS % "AttributeError: module 'msgspec' has no attribute 'new'",
        ),
        (lack("losscli.new"), None),
        (ImportError("cannot import name 'new' from 'losscli'", name="losscli.cli"), None),
        (ImportError("cannot import name 'new' from 'os'", name="os"), None),
        (AttributeError("'Context' object has no attribute 'new'", obj=click.Context), None),
        (ValueError("of losscli's own"), None),
    ],
)
def test_error_of_an_import_says_what_to_install(error, told):
    assert trouble(error) == told


@pytest.mark.parametrize(
    "text",
    ["import a_package_of_its_own", "raise OSError('libx.so: cannot open')"],
    ids=["needs another", "raises"],
)
def test_package_that_ends_its_own_import_is_named(tmp_path, monkeypatch, text):
    (tmp_path / "broken_package").mkdir()
    (tmp_path / "broken_package" / "__init__.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises((ImportError, OSError)) as raised:
        import broken_package  # type: ignore[import-not-found]  # noqa: F401
    told = trouble(raised.value)
    assert told
    assert told.startswith("broken_package is damaged, or losscli needs another version: ")


@pytest.mark.parametrize("name", ["click", "losscli.cli.main"])
def test_import_that_fails_at_the_start_is_one_message(monkeypatch, capsys, name):
    """Without click nothing can be run; a module of losscli itself is an internal error."""
    monkeypatch.setattr(interrupts, "numbers", list)
    for module in [module for module in sys.modules if module.startswith("losscli.cli.main")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    if name == "click":
        assert __main__.main() == errors.EXIT_UNFIT
        assert capsys.readouterr().err.endswith("Run `pip install click`.\n")
    else:
        with pytest.raises(ModuleNotFoundError):
            __main__.main()


# What Windows has not. Its own Python lacks more, but nothing that losscli asks for.
WINDOWS = """
import platform, signal
for module, names in ((os, ("sched_getaffinity", "geteuid")), (signal, ("SIGHUP",))):
    for name in names:
        delattr(module, name)
sys.modules["fcntl"] = None
platform.system = lambda: "Windows"
"""
RESULTS = str(Path(__file__).parents[1] / "docs" / "results" / "cpu-peers-bench.json")
REFUSAL = (
    "losscli: error: losscli's kernels are built on Linux only, and this is Windows. Use WSL 2.\n"
)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["list"], 0, ""),
        (["build", "--help"], 0, ""),
        (["compare", RESULTS, RESULTS], 0, None),
        (["build"], 4, REFUSAL),
    ],
)
def test_commands_without_kernels_work_on_every_platform(arguments, code, told):
    done = run_after(WINDOWS, *arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert told in (None, done.stderr)
