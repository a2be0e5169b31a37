"""The operators are defined by importing them; their stubs load the libraries of a call."""

import importlib
import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from losscli.errors import BuildError, UnfitError
from losscli.losses import LOSSES, ROW_LOSSES, Operand
from losscli.operators import elementwise, fallback, loading, rows
from losscli.operators import registration as registration  # defines the operators
from losscli.operators.registration import when_imported
from losscli.processes.process import FALLBACK_VARIABLE

# Stands in for the libraries: registers kernels of Python where those of C++ would be, and tells
# what was loaded.
PRELUDE = """
import warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "Using a target size")
import torch
from losscli.operators import loading, registration
registered, calls = torch.library.Library("losscli", "IMPL"), []

def below(name):
    operator = getattr(torch.ops.losscli, name).default
    def autograd(*arguments):
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*arguments)
    return autograd

def load_targets(targets):
    for target in targets:
        if target.name in calls:
            continue
        calls.append(target.name)
        if target.part == "torch":
            for name in ("mse", "mse_with_grad", "mse_backward"):
                for key in ("AutogradCPU", "AutogradCUDA", "AutogradMeta"):
                    registered.impl(name, below(name), key)
        else:
            def kernel(x, y, reduction, site=0):
                return ((x - y) ** 2).mean()
            registered.impl(target.loss, kernel, target.device.upper())

loading.load_targets = load_targets
x, y = torch.arange(4.0), torch.ones(4)
"""


# Each program runs in a child of its own, which has imported PyTorch and defined the operators.
FORKED = """
import contextlib, io, json, os, sys, traceback
told = {}
for name, program in json.loads(sys.argv[1]).items():
    reader, writer = os.pipe()
    if not os.fork():
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                exec(program, dict(globals()))
            except BaseException:
                traceback.print_exc()
        os.write(writer, said.getvalue().encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        told[name] = pipe.read()
    os.wait()
print(json.dumps(told))
"""
PROGRAMS = {
    "imports": """
import losscli.functional, losscli.nn
assert not {"torch._dynamo", "losscli.build.builder"} & set(sys.modules)
assert calls == [] and loading._loaded == {}
""",
    "first calls": """
from losscli import functional, nn
x.requires_grad_()
stub, stub_calls = registration._Stub.__call__, []
registration._Stub.__call__ = lambda *a, **k: stub_calls.append(1) or stub(*a, **k)
for _ in range(3):
    assert functional.mse_loss(x, y) == 1.5
    assert nn.MSELoss()(x, y) == 1.5
print(calls, stub_calls)
""",
    "first call in inference mode": """
from losscli import functional
with torch.inference_mode(), torch.autocast("cpu"):
    assert functional.mse_loss(x, y) == 1.5
print(calls)
""",
    "fake and meta tensors": """
from losscli import functional
meta = torch.empty(5, 4, device="meta", requires_grad=True)
assert functional.mse_loss(meta, meta[0], reduction="none").shape == (5, 4)
with torch._subclasses.FakeTensorMode():
    fake = torch.empty(5, 4, device="cuda", requires_grad=True)
    assert functional.mse_loss(fake, fake).shape == ()
print(calls)
""",
    "a sparse tensor": """
try:
    torch.ops.losscli.mse.default(x.to_sparse(), y, "mean")
except NotImplementedError as error:
    print(error)
""",
    "DTensor": """
assert "torch.distributed.tensor" not in sys.modules
warnings.simplefilter("default")
from torch.distributed.tensor import DTensor
assert torch.ops.losscli.mse.default in DTensor._op_dispatcher._custom_op_handlers
""",
}


def test_operator_schemas_are_as_in_the_golden_file(golden):
    operands = (Operand("input"), Operand("target"), Operand("weight", differentiable=False))
    three = elementwise.schemas(replace(LOSSES["mse"], name="three", operands=operands))
    library = torch.library.Library("losscli_schema_test", "DEF")
    for name, schema in three.items():
        library.define(name.replace("::", "_") + schema)
    of_rows = rows.schemas(ROW_LOSSES["cross_entropy"])
    every = {**elementwise.schemas(LOSSES["smooth_l1"]), **of_rows, **three}
    golden("schemas.txt", "".join(f"{name}{schema}\n" for name, schema in every.items()))
    assert {*"rRltmwW"} == {*"".join(spec.roles for spec in ROW_LOSSES.values())}


@pytest.mark.parametrize("loss", LOSSES)
def test_every_operator_is_defined_and_safe_to_compile(loss: str) -> None:
    for name in elementwise.schemas(LOSSES[loss]):
        namespace, _, op = name.partition("::")
        overload = getattr(getattr(torch.ops, namespace), op).default
        assert torch.Tag.pt2_compliant_tag in overload.tags


def test_first_calls_load_what_they_need_and_imports_load_nothing():
    """What each program prints in a fresh process, its errors as well."""
    command = [sys.executable, "-c", PRELUDE + FORKED, json.dumps(PROGRAMS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    sparse = "losscli::mse: input must be a dense tensor, but is torch.sparse_coo; convert it with "
    assert json.loads(done.stdout) == {
        "imports": "",
        "first calls": "['torch', 'mse_cpu'] [1]\n",
        "first call in inference mode": "['torch', 'mse_cpu']\n",
        "fake and meta tensors": "['torch']\n",
        "a sparse tensor": f"{sparse}.to_dense()\n",
        "DTensor": "",
    }


class TestStubs:
    """Stubs that nothing was registered beside, as where a library is of other sources."""

    ONES = torch.ones(3)

    @pytest.fixture(autouse=True)
    def _nothing_is_loaded(self, monkeypatch):
        if torch._C._dispatch_has_kernel_for_dispatch_key("losscli::mse", "AutogradCPU"):
            pytest.skip("the real operators are loaded in this process")
        monkeypatch.setenv(FALLBACK_VARIABLE, "error")
        monkeypatch.setattr(fallback, "_loaded", set())
        monkeypatch.setattr(fallback, "_missing", {})
        monkeypatch.setattr(loading, "load_targets", lambda *_, **__: None)

    def test_stub_that_is_called_after_loading_is_an_error(self):
        with pytest.raises(BuildError, match="losscli::mse is still without an implementation"):
            torch.ops.losscli.mse.default(self.ONES, self.ONES, "mean")
        with pytest.raises(BuildError), torch.inference_mode():
            torch.ops.losscli.mse.default(torch.ones(3), torch.ones(3), "mean")

    def test_load_error_reaches_the_caller(self, monkeypatch):
        def refuse(*_, **__):
            raise UnfitError("no C++ compiler")

        monkeypatch.setattr(loading, "load_targets", refuse)
        for _ in range(2):
            with pytest.raises(UnfitError, match="no C\\+\\+ compiler"):
                torch.ops.losscli.mse.default(self.ONES, self.ONES, "mean")


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_fake_losses_and_gradients_have_pytorchs_layout(dtype):
    input = torch.empty(6, 4).t()
    target = torch.empty(6, dtype=dtype)
    expected = input + target
    value = elementwise.FAKES[""](2, input, target, "none")
    assert (value.shape, value.dtype, value.stride()) == (
        expected.shape,
        torch.float32,
        expected.stride(),
    )
    first, second = elementwise.FAKES["_backward"](2, value, input, target, "none", [True, False])
    assert first.stride() == input.stride()
    assert second.shape == (0,)
    seconds = elementwise.FAKES["_double_backward"](2, input, target, value, input, target, "none")
    assert [tensor.shape for tensor in seconds] == [value.shape, input.shape, target.shape]
    loss, gradient = elementwise.FAKES["_with_grad"](2, input, target, "mean", 1.0, None, 1.0)
    assert (loss.shape, gradient.shape) == ((), input.shape)


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
