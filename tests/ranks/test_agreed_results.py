"""What ranks agree on after a check: a failure of any of them."""

from losscli.errors import RankError
from losscli.runs.records import FAIL, PASS, VerifyResult
from losscli.verify.ranks import agreed
from tests.handmade import case
from tests.ranks.fake_ranks import on_ranks


def result(check="value", status=PASS, reason=""):
    return VerifyResult(case(), "custom", check, status, reason)


def test_the_first_failure_of_any_rank_is_the_result_of_all():
    for statuses, found in (
        ((PASS, PASS), (PASS, "of rank 0")),
        ((FAIL, PASS), (FAIL, "of rank 0")),
        ((PASS, FAIL), (FAIL, "on rank 1: of rank 1")),
        ((FAIL, FAIL), (FAIL, "of rank 0")),
    ):

        def program(rank, statuses=statuses):
            return agreed(result("value", statuses[rank.rank], f"of rank {rank.rank}"), rank)

        assert [(each.status, each.reason) for each in on_ranks(2, program)] == [found] * 2


def test_ranks_at_different_checks_end_the_run():
    def program(rank):
        return agreed(result(("value", "parts")[rank.rank]), rank)

    errors = on_ranks(2, program)
    assert {type(error) for error in errors} == {RankError}
    assert "rank 0 is at the check value; rank 1 is at the check parts" in str(errors[0])
