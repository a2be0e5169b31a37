"""What persists in the L2 cache of a GPU is seen, and given back."""

from __future__ import annotations

import pytest
import torch

from losscli.implementations.cuda_cache import NOTHING, persisting_cache
from losscli.implementations.process_state import ProcessState
from tests.candidates.persisting_l2_window import BYTES, keep_in_cache


@pytest.mark.gpu
def test_a_window_of_a_stream_and_what_is_set_aside_for_it_are_told_and_reset():
    kept = torch.ones(2**18, device="cuda:0")
    with torch.cuda.stream(torch.cuda.Stream("cuda:0")):
        before = ProcessState.read()
        assert persisting_cache() == NOTHING

        keep_in_cache(kept)

        assert persisting_cache().window_bytes == kept.nbytes
        assert persisting_cache().bytes >= BYTES // 2
        (change,) = before.restore()
        assert change.code == "left_behind"
        assert "persisting L2 cache (0 B" in change.text
        assert persisting_cache() == NOTHING
