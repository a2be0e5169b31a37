import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from losscli.implementations.passes import capture_graph
from losscli.processes.garbage import without_garbage_collection


@pytest.fixture
def eager_collector() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


def test_garbage_collector_is_off_during_a_capture_and_afterwards_as_before():
    try:
        for switch in (gc.enable, gc.disable):
            switch()
            with without_garbage_collection():
                assert not gc.isenabled()
            assert gc.isenabled() == (switch is gc.enable)
    finally:
        gc.enable()


@pytest.mark.gpu
def test_garbage_graph_does_not_invalidate_a_capture(eager_collector):
    ones, stream = torch.ones(8, device="cuda"), torch.cuda.Stream()
    garbage: list[Any] = [torch.cuda.CUDAGraph()]
    with torch.cuda.graph(garbage[0], stream=stream):
        ones * 2
    garbage.append(garbage)  # only a collection frees it
    graph = torch.cuda.CUDAGraph()
    with capture_graph(graph, stream):
        del garbage
        cycles = [[] for _ in range(1000)]
        doubled = ones * 2
    graph.replay()
    assert doubled.tolist() == [2.0] * 8
    assert len(cycles) == 1000
