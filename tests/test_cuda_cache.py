"""What persists in the L2 cache of a GPU is seen, and given back."""

import pytest
import torch

from losscli.implementations import process_state
from losscli.implementations.cuda_cache import persisting_cache
from losscli.implementations.process_state import Piece, ProcessState
from losscli.reasons import Code
from tests.candidates.persisting_l2_window import BYTES, keep_in_cache


def test_starting_cuda_is_no_change_of_the_persisting_cache(monkeypatch):
    found: list[int | None] = [None]
    restored: list[int | None] = []
    piece = Piece("cache", lambda: found[-1], restored.append, waits=True)
    monkeypatch.setattr(process_state, "PIECES", (piece,))
    before = ProcessState.read()
    found.append(11)
    assert before.restore() == []
    before = before.completed()
    found.append(16)
    assert [change.text for change in before.restore()] == ["cache (11 before, 16 after)"]
    assert restored == [11]
    assert before.completed() == before


@pytest.mark.gpu
def test_a_window_of_a_stream_and_what_is_set_aside_for_it_are_told_and_reset():
    kept = torch.ones(2**18, device="cuda:0")
    with torch.cuda.stream(torch.cuda.Stream("cuda:0")):
        before, first = ProcessState.read(), persisting_cache()
        assert first is not None
        assert first.window_bytes == 0
        keep_in_cache(kept)
        now = persisting_cache()
        assert now is not None
        assert now.window_bytes == kept.nbytes
        assert now.bytes >= BYTES // 2
        (change,) = before.restore()
        assert change.code == Code.GLOBAL_STATE_LEAK
        assert "persisting L2 cache (" in change.text
        assert persisting_cache() == first
