"""What belongs to a module is registered once the module has been imported, and not before."""

import importlib
import sys

import pytest

from losscli.operators.registration import when_imported


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "comes_late.py").write_text("ready = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield "comes_late"
    sys.modules.pop("comes_late", None)


def test_registration_waits_until_the_module_has_run(module):
    found = []
    when_imported(module, lambda: found.append(sys.modules[module].ready))
    assert found == []
    importlib.import_module(module)
    assert found == [True]


def test_registration_happens_once(module):
    calls = []
    finders = list(sys.meta_path)
    when_imported(module, lambda: calls.append(1))
    importlib.import_module(module)
    assert sys.meta_path == finders
    del sys.modules[module]
    importlib.import_module(module)
    assert calls == [1]


def test_a_module_that_is_imported_already_is_registered_at_once(module):
    importlib.import_module(module)
    calls = []
    when_imported(module, lambda: calls.append(1))
    assert calls == [1]


def test_other_modules_and_missing_ones_are_left_alone(module):
    when_imported("a_module_that_does_not_exist", pytest.fail)
    importlib.import_module(module)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("a_module_that_does_not_exist")
