"""The header that is precompiled is the one that a compiler takes, and that a worker looks for."""

import os
import subprocess

import pytest

from losscli.build import headers
from losscli.errors import UnfitError
from losscli.implementations.sandbox import process
from losscli.implementations.sandbox.confinement import environment

SOURCE = "#include <torch/extension.h>\nint main() { return answer - 42; }\n"


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "cache"))
    headers._key.cache_clear()
    yield
    headers._key.cache_clear()


@pytest.fixture
def settings(tmp_path):
    """Return the flags of a header that is not PyTorch's, which would take a minute."""
    (tmp_path / "include" / "torch").mkdir(parents=True)
    (tmp_path / "include" / headers.HEADER).write_text("constexpr int answer = 42;\n")
    return ["-isystem", str(tmp_path / "include"), "-fPIC"]


@pytest.mark.parametrize("flags", [(), ("-O3",), ("-O2", "-DTORCH_EXTENSION_NAME=mine")])
def test_a_compiler_takes_the_header_that_was_precompiled(settings, flags, tmp_path):
    headers.precompile(settings)
    (tmp_path / "source.cpp").write_text(SOURCE)
    command = ["c++", "-H", *settings, *flags, "-c", "source.cpp"]
    environ = {**os.environ, "CPATH": headers.search_path("")}

    told = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)

    assert told.returncode == 0, told.stderr
    assert f"! {headers.folder()}" in told.stderr


def test_a_worker_looks_for_it_once_it_is_there(settings):
    assert process.environment_of_workers({"CPATH": "/mine"})["CPATH"] == "/mine"

    headers.precompile(settings)

    found = process.environment_of_workers({"CPATH": "/mine"})
    assert found["CPATH"] == f"{headers.folder()}:/mine"
    assert environment.of_candidate(found, "/scratch")["CPATH"] == found["CPATH"]


def test_header_is_made_again_only_if_it_was_cut_off(settings):
    made = headers.precompile(settings) / f"{headers.HEADER}.gch" / "plain"
    before = made.stat().st_mtime_ns
    headers.precompile(settings)
    assert made.stat().st_mtime_ns == before

    made.write_bytes(made.read_bytes()[:5000])
    assert headers.search_path("/mine") == "/mine"
    headers.precompile(settings)
    assert made.stat().st_size > 5000
    assert headers.search_path("/mine") == f"{headers.folder()}:/mine"


def test_a_compiler_that_takes_none_is_told(settings, monkeypatch):
    monkeypatch.setenv("CXX", "echo clang")

    with pytest.raises(UnfitError, match="echo clang is not GCC"):
        headers.precompile(settings)


def test_flags_are_those_that_pytorch_compiles_with():
    flags = headers.flags()

    assert any(each.startswith("-std=c++") for each in flags)
    assert any(os.path.isfile(os.path.join(each, headers.HEADER)) for each in flags)
