"""The search for compilers, which refuses unsuitable ones with advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from losscli.build import toolchain
from losscli.build.toolchain import Tool, find_compiler, find_host_compiler
from losscli.errors import UnfitError
from tests.standin import GCC_VERSION, write_program


def program(path: Path, version: str) -> Path:
    return write_program(path, f"#!/bin/sh\nprintf '%s\\n' '{version}'\n")


@pytest.fixture
def bin_(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def environ(bin_: Path, **more: str) -> dict[str, str]:
    return {"PATH": str(bin_), **more}


def test_gpp_is_preferred_over_cpp_and_cxx_may_name_a_wrapper_and_wins(bin_):
    program(bin_ / "c++", GCC_VERSION)
    assert find_compiler(environ(bin_)).program == str(bin_ / "c++")
    program(bin_ / "g++", GCC_VERSION)
    assert find_compiler(environ(bin_)) == Tool((str(bin_ / "g++"),), GCC_VERSION, (12, 2))
    program(bin_ / "ccache", GCC_VERSION)
    tool = find_compiler(environ(bin_, CXX=f"{bin_}/ccache g++-13"))
    assert (tool.command, tool.program) == ((f"{bin_}/ccache", "g++-13"), "g++-13")


def test_missing_compiler_says_what_to_install_or_set(bin_):
    with pytest.raises(UnfitError, match=r"no C\+\+ compiler.*apt-get install g\+\+.*set CXX"):
        find_compiler(environ(bin_))
    program(bin_ / "g++", GCC_VERSION)
    with pytest.raises(UnfitError, match=r"CXX should name a C\+\+ compiler, .* no program 'g77'"):
        find_compiler(environ(bin_, CXX="g77"))
    with pytest.raises(UnfitError, match=r"^CXX is not a command: unclosed quote"):
        find_compiler({"CXX": '"'})


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("clang version 17.0.6", "is not GCC.*set CXX=g"),
        ("g++ (X) 8.5.0\nFree Software Foundation", "is GCC 8.5, .* need 9.0 or newer"),
        ("g++ unreleased\nFree Software Foundation", "no version losscli can read"),
    ],
)
def test_unsuitable_compiler_is_refused(bin_, version, message):
    program(bin_ / "g++", version)
    with pytest.raises(UnfitError, match=message):
        find_compiler(environ(bin_))


def test_compiler_that_does_not_run_is_refused(bin_):
    write_program(bin_ / "g++", "#!/bin/sh\necho no licence >&2\nexit 7\n")
    with pytest.raises(UnfitError, match="failed with exit code 7, saying: no licence"):
        find_compiler(environ(bin_))


def test_nvcc_uses_cxx_unless_cudahostcxx_is_set(bin_):
    program(bin_ / "g++-12", GCC_VERSION)
    compiler = Tool(("ccache", "g++"), GCC_VERSION, (12, 2))
    assert find_host_compiler(compiler, environ(bin_)) == "g++"
    assert find_host_compiler(compiler, environ(bin_, CUDAHOSTCXX="g++-12")) == "g++-12"
    with pytest.raises(UnfitError, match="CUDAHOSTCXX should name a host compiler"):
        find_host_compiler(compiler, environ(bin_, CUDAHOSTCXX="g++-99"))


def test_compiler_that_hangs_is_refused(bin_, monkeypatch):
    monkeypatch.setattr(toolchain, "VERSION_SECONDS", 0.05)
    write_program(bin_ / "g++", "#!/bin/sh\nexec sleep 5\n")
    with pytest.raises(UnfitError, match=r"g\+\+ --version` does not end within 0.05 s"):
        find_compiler(environ(bin_, PATH=f"{bin_}:/usr/bin:/bin"))
