"""What a rank on each GPU checks.

Without a GPU two ranks on the CPU run those checks that need none.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from losscli import functional, sharded

MOST_RANKS = 4
BACKEND = "nccl" if torch.cuda.is_available() else "gloo"
CLASSES, WIDTH, ROWS = 4096, 32, 64
"""Classes of all ranks, the width of hidden states, and rows."""


def _device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda", distributed.get_rank())
    return torch.device("cpu")


def _drawn(*shape: int, seed: int = 1) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(_device())


def _classes(seed: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    found = torch.randint(CLASSES, (ROWS,), generator=generator)
    found[::7] = -100
    return found.to(_device())


def _shard(logits: Tensor) -> Tensor:
    """Return this rank's classes, of which each rank has about as many."""
    part = logits.tensor_split(distributed.get_world_size(), 1)[distributed.get_rank()]
    return part.contiguous()


def _step(logits: Tensor, target: Tensor, group: object = None) -> tuple[Tensor, Tensor]:
    mine = logits.detach().requires_grad_()
    loss = sharded.cross_entropy(mine, target, group=group)
    (gradient,) = torch.autograd.grad(loss, mine)
    return loss.detach(), gradient


def _same_bits(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def a_captured_step_replays_on_other_logits() -> None:
    """One graph has forward, its collective and backward."""
    first, second = (_shard(_drawn(ROWS, CLASSES, seed=seed)) for seed in (1, 3))
    target = _classes()
    expected = _step(second, target)
    logits = first.clone().requires_grad_()

    def step() -> tuple[Tensor, Tensor]:
        loss = sharded.cross_entropy(logits, target)
        return loss, torch.autograd.grad(loss, logits)[0]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    with torch.no_grad():
        logits.copy_(second)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    _same_bits((found[0].detach(), found[1]), expected)


def two_groups_on_two_streams_do_not_mix() -> None:
    """Each has its own collectives, at the same time."""
    target = _classes()
    logits = [_shard(_drawn(ROWS, CLASSES, seed=seed)) for seed in (4, 5)]
    expected = [_step(each, target) for each in logits]
    everyone = list(range(distributed.get_world_size()))
    groups = [distributed.new_group(everyone) for _ in logits]
    for each, group in zip(logits, groups, strict=True):
        _step(each, target, group)  # the first call asks how many classes each rank has
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in logits]
    for _ in range(20):
        found = []
        for each, group, stream in zip(logits, groups, streams, strict=True):
            with torch.cuda.stream(stream):
                found.append(_step(each, target, group))
        torch.cuda.synchronize()
        for one, other in zip(found, expected, strict=True):
            _same_bits(one, other)


def ranks_that_disagree_about_their_classes_get_nan() -> None:
    """No GPU waits to raise an error."""
    count, rank = distributed.get_world_size(), distributed.get_rank()
    widths = [CLASSES // count] * count
    actual = [*widths[:-1], widths[-1] + 1]
    said = widths if rank == 0 else actual
    loss = sharded.cross_entropy(_drawn(ROWS, actual[rank]), _classes(), sizes=said)
    assert loss.isnan() == (rank == 0), loss


def ranks_that_call_differently_get_nan() -> None:
    logits, target = _shard(_drawn(ROWS, CLASSES)), _classes()
    own = 1.0 + distributed.get_rank()
    assert sharded.cross_entropy(logits, target, temperature=own).isnan()
    assert sharded.kl_divergence(logits, logits.flip(0), temperature=own).isnan()


def a_rank_that_is_late_changes_nothing() -> None:
    logits, target = _shard(_drawn(ROWS, CLASSES)), _classes()
    expected = _step(logits, target)
    if distributed.get_rank() == distributed.get_world_size() - 1:
        time.sleep(1)
    _same_bits(_step(logits, target), expected)


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.embedding = nn.Embedding(CLASSES, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.head = nn.Linear(WIDTH, CLASSES, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.body(self.embedding(tokens)))
        return found


def _gradients(model: nn.Module) -> dict[str, Tensor]:
    found = {}
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        assert gradient is not None, name
        found[name] = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
    return found


def _alone(tokens: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    model = _Model().to(_device())
    loss = torch.nn.functional.cross_entropy(model(tokens), target)
    loss.backward()
    return loss.detach(), _gradients(model)


def _tokens() -> Tensor:
    return _classes(seed=8).clamp(min=0)


def _agree(loss: Tensor, model: nn.Module, expected: tuple[Tensor, dict[str, Tensor]]) -> None:
    torch.testing.assert_close(loss.detach(), expected[0])
    torch.testing.assert_close(_gradients(model), expected[1], rtol=1e-4, atol=1e-7)


def _mesh() -> Any:
    return init_device_mesh(_device().type, (distributed.get_world_size(),))


def models_with_a_sharded_vocabulary_train_as_on_one_device() -> None:
    """Logits are a DTensor whose classes are sharded, or no rank makes those of all classes."""
    tokens, target = _tokens(), _classes()
    expected, mesh = _alone(tokens, target), _mesh()
    model = _Model().to(_device())
    style = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(model.head, mesh, style)
    loss = functional.cross_entropy(model(tokens), target)
    loss.backward()
    _agree(loss.full_tensor(), model, expected)

    model = _Model().to(_device())
    parallelize_module(model.head, mesh, ColwiseParallel())
    hidden = model.body(model.embedding(tokens))
    hidden = DTensor.from_local(hidden, mesh, [Replicate()], run_check=False)
    loss = functional.linear_cross_entropy(hidden, model.head.weight, target)
    loss.backward()
    _agree(loss.full_tensor(), model, expected)


ON_GPUS: tuple[Callable[[], None], ...] = (
    a_captured_step_replays_on_other_logits,
    two_groups_on_two_streams_do_not_mix,
    ranks_that_disagree_about_their_classes_get_nan,
    ranks_that_call_differently_get_nan,
)
CHECKS: tuple[Callable[[], None], ...] = (
    a_rank_that_is_late_changes_nothing,
    models_with_a_sharded_vocabulary_train_as_on_one_device,
    *(ON_GPUS if torch.cuda.is_available() else ()),
)
