import ctypes
import shutil
import threading

import pytest

from losscli.build.compilers import Compilers
from losscli.build.plan import TorchInstall, installed_torch
from losscli.build.targets import TORCH, Target
from losscli.errors import BuildError, UnfitError, UsageError
from losscli.losses import LOSSES, ROW_LOSSES, WEIGHTED
from losscli.operators import loading
from tests.conftest import DATA

# Writes down what is attached; refuses a loss that it is told to.
TORCH_CPP = (DATA / "operators" / "torch.cpp").read_text()
TABLE_CPP = r"""
static const int table = NUMBER;
extern "C" __attribute__((visibility("default"))) const void* losscli_NAME() { return &table; }
"""


@pytest.fixture
def csrc(tmp_path, monkeypatch):
    """A csrc whose small libraries compile fast, and are not loaded yet."""
    if not shutil.which("g++"):
        pytest.skip("there is no g++")
    sources = {
        "losses/elementwise/loss.h": "",
        "torch/ops.cpp": TORCH_CPP.replace("REFUSED", '""'),
        "elementwise/cpu/engine.cpp": TABLE_CPP.replace("NUMBER", "41").replace("NAME", "kernels"),
        "rows/cpu/library.cpp": TABLE_CPP.replace("NUMBER", "43").replace("NAME", "row_kernels"),
        "parts/cpu/library.cpp": TABLE_CPP.replace("NUMBER", "44").replace("NAME", "part_kernels"),
        "bench/cpu/probe.cpp": TABLE_CPP.replace("NUMBER", "42").replace("NAME", "probe"),
    }
    for name, text in sources.items():
        path = tmp_path / "csrc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("losscli.build.plan.csrc_root", lambda: tmp_path / "csrc")
    monkeypatch.setattr(loading, "_loaded", {})
    found = Compilers(installed_torch())
    monkeypatch.setattr(loading, "_compilers", lambda: found)
    return tmp_path / "csrc"


def every_loss() -> list[str]:
    """Return what is attached of all losses when the operators are loaded."""
    return [
        *(f"loss {name}" for name in (*LOSSES, *WEIGHTED)),
        *(
            f"row loss {spec.name} {spec.roles} {spec.doubling} {int(spec.second_dimension)} "
            f"{int(spec.wide)}"
            for spec in ROW_LOSSES.values()
        ),
    ]


def history() -> list[str]:
    function = loading._loaded[Target(TORCH)].losscli_history
    function.restype = ctypes.c_char_p
    lines: list[str] = function().decode().splitlines()
    return lines


def test_each_library_is_loaded_by_the_first_call_that_needs_it(csrc, capfd, monkeypatch):
    def no_nvcc(requirements):
        raise AssertionError("a CPU tensor asked for nvcc")

    monkeypatch.setattr("losscli.build.nvcc.find_nvcc", no_nvcc)
    loading.load_loss("mse", "cpu")
    attached = every_loss()
    assert history() == [*attached, "kernels mse cpu 0 41"]
    told = capfd.readouterr().err
    assert told.startswith("losscli: building for this machine: torch, mse_cpu; takes about ")
    assert told.count("\n") == 1
    loading.load_loss("mse", "cpu")
    loading.load_loss("mse", "cpu", strategies=True)
    loading.load_probe("cpu")
    assert history()[len(attached) :] == [
        "kernels mse cpu 0 41",
        "kernels mse cpu 1 41",
        "probe cpu 42",
    ]


def test_load_alone_loads_the_operators_and_with_a_device_all_kernels(csrc):
    loading.load()
    attached = every_loss()
    assert history() == attached
    loading.load("cpu")
    assert history()[len(attached) :] == [
        "part kernels cpu 44",
        *(f"kernels {name} cpu 0 41" for name in LOSSES),
        *(f"row kernels {name} cpu 43" for name in ROW_LOSSES),
    ]


def test_load_of_an_unknown_device_lists_the_devices():
    with pytest.raises(UsageError, match="device must be cpu, cuda or cuda:N, but is 'tpu'"):
        loading.load("tpu")


def test_operators_refuse_unsupported_operands_with_a_reason(csrc):
    (csrc / "torch/ops.cpp").write_text(TORCH_CPP.replace("REFUSED", '"mse"'))
    with pytest.raises(BuildError, match=r"^mse: the kernels have 3 operands, the"):
        loading.load()


def test_library_that_does_not_load_is_an_error_with_a_remedy(csrc):
    (csrc / "elementwise/cpu/engine.cpp").write_text(
        'int nowhere(); extern "C" __attribute__((visibility("default"))) '
        "const void* losscli_kernels() { return reinterpret_cast<void*>(nowhere()); }"
    )
    with pytest.raises(BuildError, match=r"mse_cpu\.so does not load: .*undefined symbol"):
        loading.load_loss("mse", "cpu")
    assert list(loading._loaded) == [Target(TORCH)], "what did load is kept"


def test_failed_load_is_tried_again(csrc):
    good = (csrc / "torch/ops.cpp").read_text()
    (csrc / "torch/ops.cpp").write_text("#error no\n")
    with pytest.raises(BuildError):
        loading.load()
    (csrc / "torch/ops.cpp").write_text(good)
    loading.load()


def test_concurrent_threads_load_a_library_once(csrc):
    threads = [threading.Thread(target=loading.load_loss, args=("mse", "cpu")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert history().count("kernels mse cpu 0 41") == 1


def test_rocm_is_refused_as_unsupported(csrc, monkeypatch):
    found = Compilers(TorchInstall("2.13.0", csrc, None, True, hip="6.2"))
    monkeypatch.setattr(loading, "_compilers", lambda: found)
    (csrc / "core/cuda").mkdir(parents=True)
    (csrc / "core/cuda/runtime.cu").touch()
    with pytest.raises(UnfitError, match=r"are CUDA C\+\+; ROCm is not supported"):
        loading.load_loss("mse", "cuda")


def test_unsupported_operating_system_is_an_error_at_the_first_call(csrc, monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Windows")
    with pytest.raises(UnfitError, match=r"Linux only, and this is Windows\. Use WSL 2"):
        loading.load()
