"""What compilers say: errors, hints, resources of kernels; and headers that they have compiled."""

import os
import subprocess

import pytest

from losscli.build import diagnosis, headers
from losscli.errors import UnfitError
from losscli.implementations.sandbox.confinement import environment
from tests.conftest import DATA

GCC = (DATA / "build_logs" / "gcc.txt").read_text()


KERNEL = (DATA / "build_logs" / "nvcc.txt").read_text()
EXCERPT = """\
/tmp/mine/main.cpp: In function 'int f()':
/tmp/mine/main.cpp:3:10: fatal error: x.h: No such file or directory
    3 | #include "x.h"
      |          ^~~~~
compilation terminated.
"""


@pytest.mark.parametrize(
    ("printed", "source", "told"),
    [
        (KERNEL, "", 'cuda.cu:9: error: identifier "scaler_t" is undefined, in `{}`'),
        (KERNEL, "S = \n  {}", 'k.py:2: error: identifier "scaler_t" is undefined, in `{}`'),
        (KERNEL, "{}\n{}", 'cuda.cu:9: error: identifier "scaler_t" is undefined, in `{}`'),
        (EXCERPT, "", 'main.cpp:3: error: x.h: No such file or directory, in `#include "x.h"`'),
        (GCC, "", "mse.h:16: error: 'diference' was not declared in this scope"),
        ("ld: cannot find -lx", "", ""),
    ],
    ids=["nvcc", "in a string", "in two places", "gcc", "without the code", "no place"],
)
def test_an_error_is_told_with_its_place_and_its_code(printed, source, told):
    code = "extern __shared__ scaler_t sdata[];"
    assert diagnosis.placed_error(printed, source.format(code, code), "k.py") == told.format(code)


def test_failed_step_is_found_in_the_log():
    assert diagnosis.failed_step(GCC) == "cpu.instantiate.mse.o"
    assert diagnosis.failed_step(GCC.replace("[code=1] ", "")) == "cpu.instantiate.mse.o"
    assert diagnosis.failed_step("ninja: error: writing to build log") == "the build"


def test_first_error_is_the_compilers_message_or_the_last_line():
    for line in (
        "nvcc fatal   : Unsupported gpu architecture 'compute_121'",
        "ptxas error   : Entry function uses too much shared data (0x10000 bytes)",
        "g++: fatal error: Killed signal terminated program cc1plus",
        "engine.o: in function `f': undefined reference to `g'",
        "/usr/bin/ld: cannot find -lc10: No such file or directory",
    ):
        assert diagnosis.first_error(f"some note\n{line}\nmore\n") == line
    expected = "losses/elementwise/mse.h:16:25: error: 'diference' was not declared in this scope"
    assert diagnosis.first_error(GCC) == f"csrc/{expected}"
    assert diagnosis.first_error("one\ntwo\n\n") == "two"
    assert diagnosis.first_error("") == "the compiler printed nothing"


REMEDIES = [
    ("g++: fatal error: Killed signal terminated program cc1plus", "MAX_JOBS=1"),
    ("error: #error -- unsupported GNU version! gcc versions later than 15", "CUDAHOSTCXX"),
    ("nvcc fatal   : Unsupported gpu architecture 'compute_121'", "LOSSCLI_CUDA_ARCHITECTURES"),
    ("g++: fatal error: cannot execute 'cc1plus': execvp: No such file", "reinstall g++"),
    ("fatal error: ATen/Parallel.h: No such file or directory", "torch 2.10 or newer"),
    ("error: 'foo' is not a member of 'at'", "torch 2.10 or newer"),
    ("/usr/bin/ld: cannot find -ltorch_cpu: No such file", "reinstall torch"),
    ("fatal error: cstdint: No such file or directory", "reinstall g++"),
    ("fatal error: cuda_fp16.h: No such file or directory", "toolkit is only partly installed"),
    (GCC, ""),
]


def test_known_error_has_a_hint():
    for printed, remedy in REMEDIES:
        assert remedy in diagnosis.hint(printed)
        assert bool(remedy) == bool(diagnosis.hint(printed)), printed


# A kernel without shared memory; one that spills and calls a function with a frame of its own; the
# second again for another architecture.
PTXAS = (DATA / "build_logs" / "ptxas.txt").read_text()


def test_ptxas_resources_of_each_kernel_are_parsed():
    assert diagnosis.kernels_of(PTXAS) == [
        diagnosis.KernelResources("_Z1av", "sm_90", 32, 0, 0, 0, 0),
        diagnosis.KernelResources("_Z1bv", "sm_90", 255, 1024, 48, 44, 40),
        diagnosis.KernelResources("_Z1bv", "sm_100", 64, 1024, 0, 0, 0),
    ]
    assert diagnosis.kernels_of(GCC) == []
    rest = [line for line in PTXAS.splitlines() if not diagnosis.is_report(line)]
    assert rest == PTXAS.splitlines()[:2]


SHORT = {
    "void losscli::(anonymous namespace)::loss<float, (int)4, losscli::mse<float> >"
    "(losscli::Arguments, long)": "loss<float, (int)4, mse<float>>",
    "reduce(float*, int)": "reduce",
    "_Z9mangled": "_Z9mangled",
}


def test_kernel_names_are_shortened():
    assert [diagnosis.shorten(demangled) for demangled in SHORT] == [*SHORT.values()]


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
    assert environment.of_workers({"CPATH": "/mine"})["CPATH"] == "/mine"
    headers.precompile(settings)
    found = environment.of_workers({"CPATH": "/mine"})
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
