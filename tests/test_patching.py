"""losscli.patch: the same training with losscli's losses, and the very objects back afterwards."""

import copy
import inspect
import pickle
import sys
import types
import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import losscli
from losscli import patching
from losscli.errors import PatchError, UsageError
from losscli.operators import fallback
from losscli.patching.lazy_logits import LazyLogits
from tests.parameters import naming

STEPS = 20


@pytest.fixture(autouse=True)
def restored():
    yield
    losscli.unpatch()


def library(name):
    """Import a library whose own imports may warn; skip where it is not installed."""
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed: pip install '.[dev]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(name)


def trained(model, loss, steps=STEPS, rate=0.1):
    """Return the losses of some steps, and the last gradients."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        found = loss(model)
        found.backward()
        losses.append(found.detach())
        optimizer.step()
    return torch.stack(losses), [x.grad for x in model.parameters()]


def assert_same(found, expected, **tolerances):
    for ours, theirs in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        torch.testing.assert_close(ours, theirs, **tolerances)


# The machinery, with a library made here.


@pytest.fixture
def made(monkeypatch):
    """A library of two modules; the second has imported a loss by name and has it in a table."""

    def loss(x):
        return x + 1

    modules: list[Any] = [types.ModuleType(x) for x in ("made", "made.losses", "made.user")]
    package, losses, user = modules
    package.__version__ = "1.4.2"
    losses.loss = user.loss = loss
    user.TABLE = {"loss": loss}
    for module in modules:
        monkeypatch.setitem(sys.modules, module.__name__, module)
    package.losses = losses
    known: Any = types.ModuleType("known")
    known.MODULE, known.OLDEST, known.NEWEST = "made", (1, 2), (1, 9)
    known.table = lambda: {"made.losses.loss": ("ours.loss", lambda original: lambda x: x + 10)}
    monkeypatch.setitem(sys.modules, "known", known)
    monkeypatch.setitem(patching.LIBRARIES, "made", "known")
    return package, losses, user


def test_patch_replaces_a_loss_wherever_its_library_has_it_and_unpatch_restores_it(made):
    _, losses, user = made
    loss = losses.loss
    patch = losscli.patch("made")
    assert patch.replaced == losscli.patched() == {"made.losses.loss": "ours.loss"}
    ours = losses.loss
    assert [ours(1), user.loss(1), user.TABLE["loss"](1)] == [11, 11, 11]
    later: Any = types.ModuleType("made.later")
    sys.modules["made.later"] = later
    later.loss = ours
    losscli.unpatch("made")
    del sys.modules["made.later"]
    assert {losses.loss, user.loss, user.TABLE["loss"], later.loss} == {loss}
    assert losscli.patched() == {}
    losscli.unpatch("made")


def test_patching_twice_changes_nothing_and_the_outer_context_restores(made):
    _, losses, _ = made
    loss = losses.loss
    with losscli.patch("made"):
        ours = losses.loss
        with losscli.patch("made") as again:
            assert losses.loss is ours
            assert again.replaced == {"made.losses.loss": "ours.loss"}
        assert losses.loss is ours
    assert losses.loss is loss


def test_unpatch_leaves_what_other_code_has_replaced(made):
    _, losses, user = made
    loss = losses.loss
    losscli.patch("made")
    losses.loss = theirs = lambda x: x
    with pytest.warns(RuntimeWarning, match=r"made\.losses\.loss stays as it is"):
        losscli.unpatch()
    assert losses.loss is theirs
    assert user.loss is loss


@pytest.mark.parametrize("version", ["1.1.9", "1.10.0", "2.0", "0.5.0.dev1"])
def test_unknown_version_is_refused_with_the_remedy(made, version):
    package, losses, _ = made
    package.__version__, loss = version, losses.loss
    with pytest.raises(PatchError) as error:
        losscli.patch("made")
    for part in (version, "1.2 to 1.9", "pip install 'made>=1.2,<1.10'"):
        assert part in str(error.value)
    assert losses.loss is loss
    assert losscli.patched() == {}


def test_patch_refuses_a_missing_library_name_or_setting(made, monkeypatch):
    _, losses, _ = made
    del losses.loss
    with pytest.raises(PatchError, match=r"there is no made\.losses\.loss"):
        losscli.patch("made")
    monkeypatch.setitem(sys.modules, "made", None)
    with pytest.raises(PatchError, match="made is not installed"):
        losscli.patch("made")
    with pytest.raises(UsageError, match=r"unknown library 'torchh'\. Did you mean 'torch'"):
        losscli.patch("torchh")
    with pytest.raises(UsageError, match="unknown library"):
        losscli.unpatch("torchh")
    with pytest.raises(UsageError, match="memory_budget is a setting of 'transformers'"):
        losscli.patch("torch", memory_budget=10)


# torch.nn.functional


def draws():
    torch.manual_seed(0)
    return torch.randn(6, 5), torch.rand(6, 5), torch.randint(5, (6,)), torch.rand(6, 5) + 0.1


X, Y, CLASSES, WEIGHT = draws()
SIGNS = Y.sign() * (2 * (CLASSES % 2) - 1).view(-1, 1)
CALLS = [
    ("binary_cross_entropy", (X.sigmoid(), Y, WEIGHT, False), {}),
    ("binary_cross_entropy_with_logits", (X, Y, WEIGHT), {"pos_weight": WEIGHT[0]}),
    ("gaussian_nll_loss", (X, Y, WEIGHT), {"full": True, "eps": 0.2, "reduction": "sum"}),
    ("huber_loss", (X, Y, "none", 0.5), {"weight": WEIGHT}),
    ("kl_div", (X.log_softmax(1), Y), {"reduction": "batchmean"}),
    ("kl_div", (X.log_softmax(1), Y.log(), None, None, "sum", True), {}),
    ("l1_loss", (X, Y), {"reduce": False}),
    ("mse_loss", (X, Y), {"weight": WEIGHT}),
    ("mse_loss", (X, Y, False), {}),
    ("poisson_nll_loss", (X.exp(), Y, False, True), {"eps": 1e-3}),
    ("smooth_l1_loss", (X, Y), {"beta": 0.3, "reduction": "sum"}),
    ("soft_margin_loss", (X, SIGNS, None, None, "none"), {}),
    ("cosine_embedding_loss", (X, Y, SIGNS[:, 0], 0.1), {"size_average": True}),
    ("cross_entropy", (X, CLASSES, WEIGHT[0], None, 3), {"label_smoothing": 0.1}),
    ("cross_entropy", (X, Y.softmax(1)), {"reduction": "sum"}),
    ("multi_margin_loss", (X, CLASSES, 2, 0.7, WEIGHT[0]), {}),
    ("nll_loss", (X, CLASSES), {"weight": WEIGHT[0], "ignore_index": 2, "reduction": "none"}),
    ("triplet_margin_loss", (X, Y, WEIGHT), {"swap": True, "p": 1.5, "margin": 0.3}),
    ("linear_cross_entropy", (X, Y, CLASSES), {"label_smoothing": 0.2}),
]
CALLS = [call for call in CALLS if hasattr(F, call[0])]


def called(name, args, kwargs):
    """Return a loss of fresh operands, and the gradient of the first."""
    first = args[0].detach().clone().requires_grad_()
    loss = getattr(F, name)(first, *args[1:], **kwargs)
    return loss.detach(), *torch.autograd.grad(loss.sum(), first)


@pytest.mark.filterwarnings("ignore:size_average and reduce")
def test_losses_of_torch_have_the_same_arguments_values_and_gradients():
    replaced = losscli.patch("torch").replaced
    losscli.unpatch()
    assert {old.rpartition(".")[2] for old in replaced} == {name for name, *_ in CALLS}
    for name, args, kwargs in CALLS:
        with naming(name, kwargs):
            original, expected = getattr(F, name), called(name, args, kwargs)
            with losscli.patch("torch"):
                ours = getattr(F, name)
                assert inspect.signature(ours) == inspect.signature(original)
                found = called(name, args, kwargs)
            assert ours is not original
            assert getattr(F, name) is original
            assert_same(found, expected, rtol=2e-6, atol=1e-6)


class Logged(torch.Tensor):
    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def test_calls_that_losscli_does_not_take_go_to_torch():
    original = F.mse_loss
    with losscli.patch("torch"):
        integers = torch.tensor([1, 2]), torch.tensor([3, 3])
        assert F.l1_loss(*integers, reduction="sum") == 3
        assert F.l1_loss(X + 1j, X + 0j) == 1
        with pytest.raises(ValueError, match="avg is not a valid value for reduction"):
            F.mse_loss(X, Y, reduction="avg")
        with pytest.raises(TypeError, match="unexpected keyword argument 'delta'"):
            F.mse_loss(X, Y, delta=1)  # type: ignore[call-arg]
        F.mse_loss(X.as_subclass(Logged), Y)
        assert Logged.seen == ["mse_loss"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scripted = torch.jit.script(torch.nn.MSELoss())
        torch.testing.assert_close(scripted(X, Y), original(X, Y))


def test_patched_module_is_compiled_as_one_graph():
    compiled = torch.compile(torch.nn.CrossEntropyLoss(), fullgraph=True, backend="eager")
    logits = X.clone().requires_grad_()
    with losscli.patch("torch"):
        found = compiled(logits, CLASSES)
    assert "losscli" in found.grad_fn.name()
    torch.testing.assert_close(found, F.cross_entropy(X, CLASSES))


def test_steps_of_a_module_of_torch_are_the_same():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5))
    losses = [
        (torch.nn.CrossEntropyLoss(label_smoothing=0.1), CLASSES),
        (torch.nn.SmoothL1Loss(), Y),
        (torch.nn.BCEWithLogitsLoss(), Y),
    ]
    for criterion, target in losses:
        with naming(criterion):
            expected = trained(model, lambda m: criterion(m(X), target))  # noqa: B023
            with losscli.patch("torch"):
                found = trained(model, lambda m: criterion(m(X), target))  # noqa: B023
            assert_same(found, expected, rtol=1e-5, atol=1e-6)


# transformers

TOKENS, CLASS_COUNT, WIDTH = 96, 4096, 16


class LargestTensor(TorchDispatchMode):
    """Counts the bytes of the largest tensor that any operator returns."""

    bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, torch.Tensor) and not isinstance(tensor, LazyLogits):
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return found


def language_model(name="Llama", **changes):
    transformers = library("transformers")
    settings = {
        "vocab_size": CLASS_COUNT,
        "hidden_size": WIDTH,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "tie_word_embeddings": False,
    }
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**(settings | changes))
    return getattr(transformers, f"{name}ForCausalLM")(config).train()


def text(classes=CLASS_COUNT):
    torch.manual_seed(1)
    tokens = torch.randint(classes, (2, TOKENS // 2))
    labels = tokens.clone()
    labels[0, :20] = -100  # a prompt
    return {"input_ids": tokens, "labels": labels}


def loss_of(**named):
    return lambda model: model(**(text() | named)).loss


TOLERANCES = {"rtol": 2e-5, "atol": 1e-6}
BUDGET = 600_000


def largest_of(model, **named):
    """Return the bytes of the largest tensor of a step."""
    with LargestTensor() as found:
        trained(model, loss_of(**named), steps=1)
    return found.bytes


def test_steps_of_a_language_model_are_the_same_with_less_memory():
    model, whole = language_model(), TOKENS * CLASS_COUNT * 4
    expected = trained(model, loss_of())
    assert largest_of(model) >= whole
    with losscli.patch("transformers", memory_budget=BUDGET) as patch:
        assert_same(trained(model, loss_of()), expected, **TOLERANCES)
        assert largest_of(model) < whole / 4
    assert {*patch.replaced} == {
        "transformers.loss.loss_utils.ForCausalLMLoss",
        "transformers.loss.loss_utils.fixed_cross_entropy",
        "transformers.modeling_utils.PreTrainedModel.__call__",
    }
    base = sys.modules["transformers.modeling_utils"].PreTrainedModel
    assert "__call__" not in vars(base)


@pytest.mark.slow
def test_arguments_of_the_loss_of_a_language_model_give_the_same_steps():
    labels = text()["labels"]
    shifted = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], -100)], 1)
    each: list[dict[str, Any]] = [
        {"num_items_in_batch": torch.tensor(60)},
        {"num_items_in_batch": 60},
        {"shift_labels": shifted},
        {"ignore_index": -1, "labels": labels.clamp(min=-1)},
    ]
    for tied in (False, True):
        model = language_model(tie_word_embeddings=tied)
        for named in each:
            with naming(tied, [*named]):
                expected = trained(model, loss_of(**named), steps=5)
                for budget in (None, BUDGET):
                    with losscli.patch("transformers", memory_budget=budget):
                        found = trained(model, loss_of(**named), steps=5)
                    assert_same(found, expected, **TOLERANCES)


@pytest.mark.slow
def test_other_models_and_dtypes_give_the_same_steps():
    """Gemma 2 bends its logits, so they are computed; the head of Phi has a bias."""
    for name in ("Qwen3", "Gemma2", "Phi", "Cohere", "Mixtral"):
        model = language_model(name).eval()  # without dropout
        with naming(name):
            expected = trained(model, loss_of(), steps=3)
            with losscli.patch("transformers"):
                assert_same(trained(model, loss_of(), steps=3), expected, **TOLERANCES)

    def in_bfloat16(model):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return loss_of()(model)

    for model, loss in (
        (language_model(), in_bfloat16),
        (language_model().bfloat16(), loss_of()),
        (language_model().double(), loss_of()),
    ):
        expected = trained(model, loss, steps=3)
        with losscli.patch("transformers"):
            found = trained(model, loss, steps=3)
        assert_same(found, expected, rtol=2e-2, atol=1e-4)


@pytest.mark.slow
def test_logits_of_a_patched_model_are_computed_when_they_are_read():
    model = language_model()
    expected = model(**text())
    with losscli.patch("transformers"):
        found = model(**text())
        logits = found.logits
        assert isinstance(logits, LazyLogits)
        assert logits._value is None
        assert isinstance(logits.to(torch.bfloat16), LazyLogits)
        assert logits.data_ptr() != 0
        for copied in (copy.deepcopy(logits), pickle.loads(pickle.dumps(logits))):
            assert type(copied) is torch.Tensor
            assert torch.equal(copied, logits)
        torch.testing.assert_close(logits[:, -1], expected.logits[:, -1])
        assert repr(logits)[:30] == repr(expected.logits)[:30]
        gradients = [
            torch.autograd.grad(x.logits.square().mean(), [*model.parameters()], retain_graph=True)
            for x in (found, expected)
        ]
        assert_same(*gradients, **TOLERANCES)
        found = model(**text())
        with torch.no_grad():
            model.lm_head.weight.add_(1)
        with pytest.raises(RuntimeError, match="read them before the optimizer's step"):
            found.logits.sum()
        with torch.no_grad():
            assert type(model(**text()).logits) is torch.Tensor
        assert type(model(text()["input_ids"]).logits) is torch.Tensor
        traced = torch.compile(model, backend="eager")(**text())
        assert type(traced.logits) is torch.Tensor
        torch.testing.assert_close(traced.loss, model(**text()).loss)
        model.lm_head.register_forward_hook(lambda *given: None)
        assert type(model(**text()).logits) is torch.Tensor


@pytest.mark.slow
def test_trainer_of_transformers_gives_the_same_weights(tmp_path):
    transformers = library("transformers")
    library("accelerate")
    rows = [{name: x[k % 2].roll(k) for name, x in text().items()} for k in range(8)]

    def run():
        model = language_model()
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            num_train_epochs=2,
            report_to=[],
            use_cpu=True,
            save_strategy="no",
            disable_tqdm=True,
        )
        done = transformers.Trainer(model=model, args=arguments, train_dataset=rows).train()
        return done.training_loss, [x.detach() for x in model.parameters()]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = run()
        with losscli.patch("transformers"):
            found = run()
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    assert_same(found[1], expected[1], **TOLERANCES)


@pytest.mark.slow
def test_patched_step_of_a_language_model_works_without_kernels(monkeypatch):
    model = language_model()
    expected = trained(model, loss_of(), steps=2)
    for name in ("has_kernels", "has_parts"):
        monkeypatch.setattr(fallback, name, lambda *given: False)
    with losscli.patch("transformers"):
        assert_same(trained(model, loss_of(), steps=2), expected, **TOLERANCES)


# TRL


def test_steps_of_a_policy_are_the_same_with_trls_functions():
    library("trl")
    utils = library("trl.trainer.utils")
    torch.manual_seed(0)
    model, hidden = torch.nn.Linear(8, 40), torch.randn(3, 7, 8)
    tokens, advantages = torch.randint(40, (3, 7)), torch.randn(3, 1)

    def loss(model):
        logits = model(hidden)
        log_probs = utils.selective_log_softmax(logits, tokens)
        entropy = utils.entropy_from_logits(logits, 2)
        return -(log_probs.exp() * advantages).mean() - 0.01 * entropy.mean()

    takes = inspect.signature(utils.selective_log_softmax).parameters

    def values():
        logits = model(hidden)
        yield utils.selective_log_softmax(logits.double(), tokens)
        yield utils.selective_log_softmax(logits.bfloat16(), tokens).float()
        yield utils.entropy_from_logits(logits.bfloat16()).float()
        if "row_mask" in takes:
            several = torch.stack([tokens, tokens.flip(0)], -1)
            yield utils.selective_log_softmax(logits, several)  # losscli takes one token
            given = {"temperature": 0.7, "row_mask": (tokens > 9).long()}
            yield utils.selective_log_softmax(logits, tokens, **given)
            yield from utils.selective_log_softmax_and_entropy(logits, tokens, False, **given)

    expected, results = trained(model, loss), [*values()]
    with losscli.patch("trl") as patch, losscli.patch("torch"):
        assert "trl.trainer.utils.selective_log_softmax" in patch.replaced
        assert "torch.nn.functional.mse_loss" in losscli.patched()
        assert_same(trained(model, loss), expected, rtol=1e-5, atol=1e-6)
        for found, due in zip(values(), results, strict=True):
            bits = 16 if due.bfloat16().float().equal(due) else 32
            assert_same(found, due, rtol=2e-2 if bits == 16 else 1e-5, atol=1e-6)
            assert found.requires_grad == due.requires_grad
        if "row_mask" in takes:
            with pytest.raises(ValueError, match="temperature must be positive"):
                utils.selective_log_softmax(model(hidden), tokens, temperature=0.0)
