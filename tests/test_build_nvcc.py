"""The search for nvcc, and its checks against driver, PyTorch and GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from losscli.build import nvcc as nvcc_module
from losscli.build.nvcc import Requirements, find_nvcc, parse_version
from losscli.errors import UnfitError
from tests.standin import NVCC_VERSION, write_program


def program(path: Path, version: str = NVCC_VERSION) -> Path:
    return write_program(path, f"#!/bin/sh\nprintf '%s\\n' '{version}'\n")


def nvcc(path: Path, version: str) -> Path:
    return program(path, f"Cuda compilation tools, release {version}, V{version}.1")


@pytest.fixture
def bin_(tmp_path, monkeypatch):
    """A folder for programs, on a machine that has nothing in the usual places."""
    monkeypatch.setattr(nvcc_module, "USUAL_PLACE", tmp_path / "local")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "site-packages"))
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def environ(bin_: Path, **more: str) -> dict[str, str]:
    return {"PATH": str(bin_), **more}


def find(bin_: Path, requirements: Requirements | None = None, **more: str) -> str:
    return find_nvcc(requirements or Requirements(), environ(bin_, **more)).program


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


def test_cuda_home_without_nvcc_is_ignored(tmp_path, bin_):
    on_path = program(bin_ / "nvcc")
    assert find(bin_, CUDA_HOME=str(tmp_path)) == str(on_path)


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


def test_next_nvcc_is_chosen_where_the_first_does_not_fit(tmp_path, bin_):
    nvcc(bin_ / "nvcc", "13.0")
    program(tmp_path / "local" / "cuda" / "bin" / "nvcc", "broken")
    fitting = nvcc(tmp_path / "local" / "cuda-12.8" / "bin" / "nvcc", "12.8")
    assert find(bin_, Requirements(driver=(12, 4), torch=(12, 4))) == str(fitting)


def test_nvcc_named_in_cudacxx_is_used_or_refused(tmp_path, bin_):
    named = nvcc(tmp_path / "named", "13.0")
    nvcc(bin_ / "nvcc", "12.8")
    with pytest.raises(UnfitError, match=r"named is CUDA 13\.0, but the driver runs CUDA 12\.4"):
        find(bin_, Requirements(driver=(12, 4)), CUDACXX=str(named))


def test_error_names_each_unsuitable_nvcc(tmp_path, bin_):
    nvcc(bin_ / "nvcc", "13.0")
    nvcc(tmp_path / "local" / "cuda" / "bin" / "nvcc", "11.8")
    with pytest.raises(UnfitError, match=r"is CUDA 13\.0, but .*; .*cuda/bin/nvcc is CUDA 11\.8"):
        find(bin_, Requirements(driver=(12, 4)))


def test_nvcc_versions_are_parsed():
    texts = ("12.8", "13.0.1", "", None, "12")
    assert [parse_version(text) for text in texts] == [(12, 8), (13, 0), None, None, None]


def test_places_of_the_search_are_named_in_its_order(tmp_path, bin_):
    found = nvcc_module.searched(environ(bin_, CUDA_HOME="/opt/cuda"))
    packages = str(tmp_path / "site-packages" / "nvidia")
    assert found == ["CUDA_HOME=/opt/cuda", "the PATH", f"{tmp_path / 'local'}/cuda*", packages]
    assert nvcc_module.searched(environ(bin_, CUDACXX="my nvcc")) == ["CUDACXX=my nvcc"]
