"""The place of a rank, the classes that it has, and what the end of a rank means."""

from types import SimpleNamespace

import pytest

from losscli.cases.case import Case
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


def test_place_is_that_of_torchruns_variables():
    assert Place.of_environment(TORCHRUN) == Place(rank=1, size=4, local_rank=1)
    assert Place.of_environment({"PATH": "/bin"}) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"LOCAL_RANK": ""}, "LOCAL_RANK are not. Start it with --ranks N, or by `torchrun"),
        ({"RANK": "one"}, "RANK must be a number, but is 'one'"),
        ({"RANK": "4"}, "RANK must be below WORLD_SIZE, but is 4 of 4"),
    ],
)
def test_variables_that_make_no_place_are_refused(change, message):
    with pytest.raises(UsageError, match=message):
        Place.of_environment(TORCHRUN | change)


@pytest.mark.parametrize("given", ["0", "soon", "-1"])
def test_timeout_is_whole_seconds(monkeypatch, given):
    monkeypatch.setenv("LOSSCLI_RANKS_TIMEOUT", given)
    with pytest.raises(UsageError, match=f"at least 1, but is '{given}'"):
        seconds_of_collectives()


@pytest.mark.parametrize(
    ("classes", "ranks", "counts"),
    [
        (8, 2, [4, 4]),
        (10, 4, [3, 3, 3, 1]),
        (5, 4, [2, 2, 1, 0]),  # a rank without classes
        (0, 2, [0, 0]),
    ],
)
def test_classes_are_split_as_dtensor_splits_them(classes, ranks, counts):
    shares = [share(classes, ranks, rank) for rank in range(ranks)]
    assert [count for _, count in shares] == counts
    assert [first for first, _ in shares] == [sum(counts[:rank]) for rank in range(ranks)]


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


@pytest.fixture
def case():
    (found, *_) = expand(load_config("sharded-cpu", {}).tables[0], "cpu")
    return found


def test_a_case_names_its_ranks_and_is_another_than_the_whole_one(case):
    assert case.name.endswith("ranks=1")
    assert case.whole.placement == ""
    assert case != case.whole


def test_bytes_of_a_pass_are_those_of_the_rank_with_the_most_classes(case):
    split = Case(**{n: getattr(case, n) for n in case.__struct_fields__} | {"ranks": 3})
    assert split.shard.shape == (256, 1366)  # of 4096
    assert split.floor_bytes("forward") == 4 * 256 * 1366 + 8 * 256
    assert split.floor_bytes("forward") == split.shard.floor_bytes("forward")


def test_json_of_an_ordinary_case_has_no_ranks(case):
    assert {"ranks", "placement"} <= case.to_json().keys()
    assert not {"ranks", "placement"} & case.whole.to_json().keys()
