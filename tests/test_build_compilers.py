import re
from pathlib import Path

import pytest

from losscli.build import nvcc as nvcc_module
from losscli.build import toolchain
from losscli.build.nvcc import (
    VARIABLE,
    Requirements,
    covers,
    find_nvcc,
    gencode_flags,
    parse_version,
)
from losscli.build.toolchain import Tool, find_compiler, find_host_compiler
from losscli.errors import UnfitError, UsageError
from tests.standin import GCC_VERSION, NVCC_VERSION, write_program


@pytest.fixture
def bin_(tmp_path, monkeypatch):
    """A folder for programs, on a machine that has nothing in the usual places."""
    monkeypatch.setattr(nvcc_module, "USUAL_PLACE", tmp_path / "local")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "site-packages"))
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def program(path: Path, version: str = NVCC_VERSION) -> Path:
    return write_program(path, f"#!/bin/sh\nprintf '%s\\n' '{version}'\n")


def environ(bin_: Path, **more: str) -> dict[str, str]:
    return {"PATH": str(bin_), **more}


def test_gpp_is_preferred_over_cpp_and_cxx_may_name_a_wrapper_and_wins(bin_):
    program(bin_ / "c++", GCC_VERSION)
    assert find_compiler(environ(bin_)).command[-1] == str(bin_ / "c++")
    program(bin_ / "g++", GCC_VERSION)
    assert find_compiler(environ(bin_)) == Tool((str(bin_ / "g++"),), GCC_VERSION, (12, 2))
    program(bin_ / "ccache", GCC_VERSION)
    tool = find_compiler(environ(bin_, CXX=f"{bin_}/ccache g++-13"))
    assert tool.command == (f"{bin_}/ccache", "g++-13")


def test_missing_compiler_says_what_to_install_or_set(bin_):
    with pytest.raises(UnfitError, match=r"no C\+\+ compiler.*apt-get install g\+\+.*set CXX"):
        find_compiler(environ(bin_))
    program(bin_ / "g++", GCC_VERSION)
    with pytest.raises(UnfitError, match=r"CXX should name a C\+\+ compiler, .* no program 'g77'"):
        find_compiler(environ(bin_, CXX="g77"))
    with pytest.raises(UnfitError, match=r"^CXX is not a command: unclosed quote"):
        find_compiler({"CXX": '"'})


UNFIT = {
    "clang version 17.0.6": "is not GCC.*set CXX=g",
    "g++ (X) 8.5.0\nFree Software Foundation": "is GCC 8.5, .* need 9.0 or newer",
    "g++ unreleased\nFree Software Foundation": "no version losscli can read",
}


def test_unsuitable_compiler_or_one_that_does_not_run_is_refused(bin_):
    for version, message in UNFIT.items():
        program(bin_ / "g++", version)
        with pytest.raises(UnfitError, match=message):
            find_compiler(environ(bin_))
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


def nvcc(path: Path, version: str) -> Path:
    return program(path, f"Cuda compilation tools, release {version}, V{version}.1")


def find(bin_: Path, requirements: Requirements | None = None, **more: str) -> str:
    return find_nvcc(requirements or Requirements(), environ(bin_, **more)).command[-1]


def test_nvcc_search_goes_from_cudacxx_to_the_usual_place(tmp_path, bin_):
    variables = {
        "CUDACXX": str(program(tmp_path / "named")),
        "CUDA_HOME": str(tmp_path / "home"),
        "CUDA_PATH": str(tmp_path / "path"),
    }
    places = [
        tmp_path / "named",
        program(tmp_path / "home" / "bin" / "nvcc"),
        program(tmp_path / "path" / "bin" / "nvcc"),
        program(bin_ / "nvcc"),
        program(tmp_path / "local" / "cuda" / "bin" / "nvcc"),
        program(tmp_path / "local" / "cuda-12.10" / "bin" / "nvcc"),
        program(tmp_path / "local" / "cuda-12.9" / "bin" / "nvcc"),
        program(tmp_path / "site-packages" / "nvidia" / "cu13" / "bin" / "nvcc"),
    ]
    for place in places:
        assert find(bin_, None, **variables) == str(place)
        if variables:
            variables.pop(next(iter(variables)))
        else:
            place.unlink()


def test_missing_nvcc_error_says_what_to_install(bin_):
    with pytest.raises(UnfitError, match=r"no nvcc on the PATH.*Install CUDA 12\.0 or newer"):
        find(bin_)
    with pytest.raises(UnfitError, match=r"Install a CUDA 12 toolkit"):
        find(bin_, Requirements(torch=(12, 8)))
    with pytest.raises(UnfitError, match=r"^CUDACXX is not a command: unclosed quote"):
        find(bin_, CUDACXX='"')


TWELVE = "Install a CUDA 12 toolkit and name its nvcc in CUDACXX."
DROPPED = (
    "13.0, which dropped GPUs below compute capability 7.5, and the newest here has 7.0. Install a "
    "CUDA 12 toolkit and "
)
UNSUITABLE = {
    "11.8, but the kernels need 12.0 or newer. Install CUDA 12.0 or newer and name its nvcc in "
    "CUDACXX.": Requirements(),
    f"13.0, but the driver runs CUDA 12.4 at most. {TWELVE}": Requirements((12, 4), (12, 8)),
    "12.8, but torch is built for CUDA 13.0. " + TWELVE.replace("12", "13"): Requirements(
        (13, 0), (13, 0)
    ),
    "13.0, but the driver runs CUDA 12.4 at most. Update the driver to one for CUDA 13, or install "
    "a torch built for CUDA 12 and a toolkit of that version.": Requirements((12, 4), (13, 0)),
    f"{DROPPED}a torch built for CUDA 12, and name the toolkit's nvcc in CUDACXX.": Requirements(
        (13, 0), (13, 0), (7, 0)
    ),
    f"{DROPPED}name its nvcc in CUDACXX.": Requirements((13, 0), (12, 8), (7, 0)),
}


def test_unsuitable_nvcc_is_refused_with_advice(bin_):
    for message, requirements in UNSUITABLE.items():
        path = nvcc(bin_ / "nvcc", message[:4])
        with pytest.raises(UnfitError, match=re.escape(f"{path} is CUDA {message}") + "$"):
            find(bin_, requirements)


def test_suitable_nvcc_is_accepted(bin_):
    for version, requirements in (
        ("12.8", Requirements(driver=(12, 4), torch=(12, 6), newest_gpu=(9, 0))),
        ("12.8", Requirements(driver=(13, 0), torch=(12, 6), newest_gpu=(7, 0))),
        ("13.0", Requirements(driver=(13, 0), torch=(13, 0), newest_gpu=(7, 5))),
        ("13.0", Requirements()),
    ):
        path = nvcc(bin_ / "nvcc", version)
        assert find(bin_, requirements) == str(path)


def test_next_nvcc_is_chosen_where_the_first_does_not_fit_unless_it_is_named(tmp_path, bin_):
    named = nvcc(bin_ / "nvcc", "13.0")
    old = nvcc(tmp_path / "local" / "cuda" / "bin" / "nvcc", "11.8")
    with pytest.raises(UnfitError, match=r"is CUDA 13\.0, but .*; .*cuda/bin/nvcc is CUDA 11\.8"):
        find(bin_, Requirements(driver=(12, 4)))
    program(old, "broken")
    fitting = nvcc(tmp_path / "local" / "cuda-12.8" / "bin" / "nvcc", "12.8")
    without = {"CUDA_HOME": str(tmp_path)}  # a folder without nvcc
    assert find(bin_, Requirements((12, 4), (12, 4)), **without) == str(fitting)
    with pytest.raises(UnfitError, match=r"nvcc is CUDA 13\.0, but the driver runs CUDA 12\.4"):
        find(bin_, Requirements(driver=(12, 4)), CUDACXX=str(named))


def test_nvcc_versions_are_parsed():
    texts = ("12.8", "13.0.1", "", None, "12")
    assert [parse_version(text) for text in texts] == [(12, 8), (13, 0), None, None, None]


def test_places_of_the_search_are_named_in_its_order(tmp_path, bin_):
    found = nvcc_module.searched(environ(bin_, CUDA_HOME="/opt/cuda"))
    packages = str(tmp_path / "site-packages" / "nvidia")
    assert found == ["CUDA_HOME=/opt/cuda", "the PATH", f"{tmp_path / 'local'}/cuda*", packages]
    assert nvcc_module.searched(environ(bin_, CUDACXX="my nvcc")) == ["CUDACXX=my nvcc"]


SM_90 = "-gencode=arch=compute_90,code=sm_90"
PTX_90 = "-gencode=arch=compute_90,code=compute_90"
SM_100 = "-gencode=arch=compute_100,code=sm_100"
PTX_100 = "-gencode=arch=compute_100,code=compute_100"


@pytest.mark.parametrize(
    ("gpus", "variable", "flags"),
    [
        ([(10, 0), (9, 0), (9, 0)], None, (SM_90, SM_100)),
        ([], None, (SM_90, PTX_90)),
        ([(6, 1), (9, 0)], None, (SM_90,)),  # older ones are left out
        ([(8, 6)], "90;100", (SM_90, SM_100, PTX_100)),
        ([(8, 6)], "100, 90", (SM_90, SM_100, PTX_100)),
        ([], " 90 100;90", (SM_90, SM_100, PTX_100)),
        ([], "90a", (SM_90.replace("90", "90a"), PTX_90.replace("90", "90a"))),
    ],
)
def test_architectures_are_those_of_the_gpus_or_the_variable(gpus, variable, flags):
    assert gencode_flags(gpus, {VARIABLE: variable} if variable else {}) == flags


def test_wrong_or_too_old_architectures_are_refused():
    for text in ("hopper", "9.0", "sm_90", "90;x"):
        with pytest.raises(UsageError, match=r"should list architectures such as 90;100, but has"):
            gencode_flags([], {VARIABLE: text})
    with pytest.raises(UsageError, match="has '61', but the kernels need 70 or newer"):
        gencode_flags([], {VARIABLE: "61;90"})
    with pytest.raises(UnfitError, match=r"capability 7\.0 or newer; the newest here has 6\.1"):
        gencode_flags([(5, 2), (6, 1)], {})


def test_gpus_that_cuda_13_dropped_need_a_cuda_12_toolkit():
    assert "arch=compute_70" in gencode_flags([(7, 0)], {}, (12, 8))[0]
    assert gencode_flags([(7, 0), (9, 0)], {}, (13, 0)) == (SM_90,)
    message = r"has '70', but CUDA 13\.0 compiles for 75 or newer.*CUDA 12 toolkit in CUDACXX"
    with pytest.raises(UsageError, match=message):
        gencode_flags([], {VARIABLE: "70;90"}, (13, 0))


def test_compiled_code_runs_on_gpus_of_its_major_version():
    sm_80, sm_86, sm_90a = (SM_90.replace("90", each) for each in ("80", "86", "90a"))
    for flags, capability, runs in (
        ((SM_90,), (9, 0), True),
        ((SM_90,), (10, 0), False),
        ((SM_90, PTX_90), (10, 0), True),
        ((SM_90, PTX_90), (8, 0), False),
        ((sm_80,), (8, 6), True),
        ((sm_86,), (8, 0), False),
        ((sm_90a,), (9, 0), False),
    ):
        assert covers(flags, [capability]) is runs, (flags, capability)
        assert covers(flags, [])
