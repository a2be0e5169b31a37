"""`make mutate`: its mutations fit the sources as they are, and its lines say what came of them."""

from __future__ import annotations

import pytest

from tests import mutate

EVERY = (*mutate.LOSSES, *mutate.CPU, *mutate.CUDA)


@pytest.mark.parametrize("mutation", EVERY, ids=lambda m: f"{m.file}, {m.mistake}")
def test_a_mutation_changes_what_is_there(mutation):
    text = (mutate.ROOT / "csrc" / mutation.file).read_text()

    assert mutation.old in text
    assert text.replace(mutation.old, mutation.new, 1) != text


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_there_are_enough_for_a_device(device):
    chosen = mutate.mutations(device)

    assert len([m for m in chosen if not m.equivalent]) >= 20
    assert len({(m.file, m.mistake) for m in chosen}) == len(chosen)


def test_a_survivor_ends_with_1(monkeypatch, capsys):
    monkeypatch.setattr(mutate, "verify", lambda root, device: "")

    assert mutate.main(["--only", "no clamp"]) == 1
    out = capsys.readouterr().out
    assert "losses/hinge.h, no clamp: SURVIVED" in out
    assert "0 of 1 killed, 1 not as expected" in out


def test_who_kills_is_named(monkeypatch, capsys):
    monkeypatch.setattr(mutate, "verify", lambda root, device: "value of hinge")

    assert mutate.main(["--only", "no clamp"]) == 0
    assert "losses/hinge.h, no clamp: killed by value of hinge" in capsys.readouterr().out
