from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from losscli.config.expansion import expand
from losscli.config.loader import load_config
from losscli.errors import RankError, UsageError
from losscli.losses import find_loss
from losscli.ranks.launch import exit_code
from losscli.ranks.place import Place, seconds_of_collectives
from losscli.ranks.placements import CUTS, share

TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}


def test_place_is_that_of_torchruns_variables(monkeypatch):
    assert Place.of_environment(TORCHRUN) == Place(rank=1, size=4, local_rank=1)
    assert Place.of_environment({"PATH": "/bin"}) is None
    for change, message in (
        ({"LOCAL_RANK": ""}, "LOCAL_RANK are not. Start it with --ranks N, or by `torchrun"),
        ({"RANK": "one"}, "RANK must be a number, but is 'one'"),
        ({"RANK": "4"}, "RANK must be below WORLD_SIZE, but is 4 of 4"),
    ):
        with pytest.raises(UsageError, match=message):
            Place.of_environment(TORCHRUN | change)
    for given in ("0", "soon", "-1"):
        monkeypatch.setenv("LOSSCLI_RANKS_TIMEOUT", given)
        with pytest.raises(UsageError, match=f"at least 1, but is '{given}'"):
            seconds_of_collectives()


def test_classes_are_split_as_dtensor_splits_them():
    # Of five classes the last of four ranks has none.
    for counts in ([4, 4], [3, 3, 3, 1], [2, 2, 1, 0], [0, 0]):
        ranks = range(len(counts))
        shares = [share(sum(counts), len(counts), rank) for rank in ranks]
        assert [count for _, count in shares] == counts
        assert [first for first, _ in shares] == [sum(counts[:rank]) for rank in ranks]


def test_each_operand_that_is_cut_is_one_of_its_loss():
    for loss, cuts in CUTS.items():
        assert cuts.keys() <= {*find_loss(loss).names}, loss


def failure(code, timestamp=0):
    return SimpleNamespace(exitcode=code, pid=77, timestamp=timestamp)


def test_a_killed_rank_is_named_whatever_the_others_end_with():
    with pytest.raises(RankError, match=r"rank 1 \(process 77\) ended by SIGKILL, as when"):
        exit_code({0: failure(1), 1: failure(-9)})


def test_the_exit_code_is_that_of_the_first_rank():
    assert exit_code({0: failure(2), 1: failure(2)}) == 2
    assert exit_code({2: failure(70)}) == 70
    assert exit_code({0: failure(-15), 1: failure(1)}) == 1  # ended by torchrun after the other
    assert exit_code({0: failure(1), 1: failure(-9, timestamp=30)}) == 1  # so is one that hangs


def test_a_case_of_ranks_is_another_than_the_whole_one():
    (case, *_) = expand(load_config("sharded-cpu", {}).tables[0], "cpu")
    assert case.name.endswith("ranks=1")
    assert case.whole.placement == ""
    assert case != case.whole
    assert {"ranks", "placement"} <= case.to_json().keys()
    assert not {"ranks", "placement"} & case.whole.to_json().keys()
    split = replace(case, ranks=3)
    assert split.shard.shape == (256, 1366)  # that of the rank with the most of 4096 classes
    assert split.floor_bytes("forward") == 4 * 256 * 1366 + 8 * 256
    assert split.floor_bytes("forward") == split.shard.floor_bytes("forward")
