"""The probe moves every byte, whatever the mix, the size and the variant."""

import pytest
import torch
from torch import Tensor

from losscli.bench.limit import Limits
from losscli.implementations.timer import make_timer
from losscli.operators import loading

from .losses import case_of

MIXES = ((1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (2, 2))
SIZES = (1, 15, 4096, 2**20 + 7)
"""Less than a pack; a tail alone; whole lines; several chunks and tiles with a tail."""


@pytest.fixture(autouse=True)
def _probe(device):
    loading.load_probe(device)


def probe(reads: list[Tensor], writes: list[Tensor], variant: int = 0) -> None:
    torch.ops.losscli_bench.memory_probe.default(reads, writes, variant)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("reads", "writes"), MIXES)
def test_an_array_that_is_written_combines_those_that_are_read(device, reads, writes, size):
    generator = torch.Generator(device).manual_seed(size)
    sources = [
        torch.randint(256, (size,), dtype=torch.uint8, device=device, generator=generator)
        for _ in range(reads)
    ]
    copies = [source.clone() for source in sources]
    for variant in range(torch.ops.losscli_bench.memory_probe_variants(torch.device(device))):
        untouched = torch.full((size + 64,), 7, dtype=torch.uint8, device=device)
        outputs = [untouched.clone() for _ in range(writes)]
        probe(sources, [output[:size] for output in outputs], variant)
        for number, output in enumerate(outputs):
            expected = torch.zeros(size, dtype=torch.uint8, device=device)
            for source in sources[number::writes]:
                expected ^= source
            assert torch.equal(output[:size], expected)
            assert (output[size:] == 7).all()  # nothing beyond the end
    assert all(map(torch.equal, sources, copies))


def test_probe_depends_on_bytes_not_on_dtype(device):
    source = torch.randn(6, dtype=torch.float64, device=device)
    output = torch.empty(12, dtype=torch.float32, device=device)
    probe([source], [output])
    assert torch.equal(output.view(torch.float64), source)


def test_bench_measures_a_limit_with_the_probe(device):
    case = case_of("mse", "none", *(torch.ones(64, 64, device=device) for _ in "xy"))
    operands = [torch.ones(64, 64, device=device) for _ in "xyg"]
    timer = make_timer(case.device, False)
    limit = Limits(case.device).find(case, "forward_backward", timer, operands)
    assert limit.reason == ""
    assert limit.seconds is not None
    assert limit.seconds > 0


def test_empty_tensor_launches_no_kernel(device):
    probe([torch.empty(0, device=device)], [torch.empty(0, device=device)])


@pytest.mark.parametrize(
    ("reads", "writes", "variant", "message"),
    [
        ([4] * 5, [], 0, "expected up to 4 tensors to read and 2 to write, got 5 and 0"),
        ([4, 4, 4], [4, 4], 0, "no kernel reads 3 arrays and writes 2"),
        ([4, 5], [], 0, "all tensors must be of one size, but have 16 and 20 bytes"),
        ([4], [], 99, r"variant must be 0 to \d+, but is 99"),
    ],
)
def test_calls_for_which_the_probe_has_no_kernel_are_refused(
    device, reads, writes, variant, message
):
    sources, results = (
        [torch.zeros(count, device=device) for count in counts] for counts in (reads, writes)
    )
    with pytest.raises((RuntimeError, ValueError), match=message):
        probe(sources, results, variant)


def test_arrays_that_are_not_contiguous_and_aligned_are_refused(device):
    square = torch.zeros(8, 8, device=device)
    with pytest.raises(RuntimeError, match=r"must be contiguous, but one of shape \[8, 8\]"):
        probe([square.t()], [])
    with pytest.raises(RuntimeError, match="begin at a multiple of 16 bytes"):
        probe([square.flatten()[1:5]], [])
