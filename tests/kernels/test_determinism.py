"""Results have the same bits in every run, whatever runs beside them."""

import pytest
import torch

from .losses import DTYPES, MACHINERY, custom, make


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loss", MACHINERY)
def test_twenty_runs_give_the_same_bits(loss, dtype, device):
    values = make(DTYPES[dtype], device)
    input, target = values((301, 997)), values((997,))
    runs = []
    for _ in range(20):
        leaves = input.clone().requires_grad_(), target.clone().requires_grad_()
        result = custom(loss)(*leaves)
        runs.append((result.detach(), *torch.autograd.grad(result, leaves)))
    for run in runs[1:]:
        assert all(torch.equal(again, first) for again, first in zip(run, runs[0], strict=True))


@pytest.mark.parametrize("loss", MACHINERY)
def test_the_number_of_threads_does_not_change_the_bits(loss):
    values = make(torch.float32, "cpu")
    input, target = values((301, 997)), values((997,))
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            leaf = target.clone().requires_grad_()
            result = custom(loss)(input, leaf)
            results.append((result.detach(), torch.autograd.grad(result, leaf)[0]))
    finally:
        torch.set_num_threads(threads)
    for result, gradient in results[1:]:
        assert torch.equal(result, results[0][0])
        assert torch.equal(gradient, results[0][1])


@pytest.mark.gpu
@pytest.mark.parametrize("loss", MACHINERY)
def test_streams_and_graphs_give_the_same_bits(loss):
    values = make(torch.float32, "cuda")
    input, target = values((2048, 2048)), values((2048,))
    function = custom(loss)
    expected = function(input, target)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    results = []
    for _ in range(10):
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(function(input, target))
    torch.cuda.synchronize()
    assert all(torch.equal(result, expected) for result in results)

    # Two graphs, replayed at once, with new contents in the same operands.
    graphs = []
    for stream in streams:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            output = function(input, target)
        graphs.append((graph, output))
    input.mul_(1.5)
    expected = function(input, target)
    torch.cuda.synchronize()
    for _ in range(5):
        for stream, (graph, _) in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(output, expected) for _, output in graphs)
