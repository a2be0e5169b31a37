"""What ranks check themselves: collectives, special values, errors, groups, checks of verify."""

import pytest

from .cases import RANKS


@pytest.mark.parametrize("count", RANKS)
def test_all_ranks_pass_each_check(count, found):
    """Not imported here: the checks import what takes seconds."""
    for rank, of_rank in enumerate(found[count]):
        assert not of_rank.get("raised"), f"rank {rank}: " + "\n".join(of_rank["raised"])
        assert len(of_rank["checks"]) >= 16


@pytest.mark.parametrize("rank", [0, 1])
def test_checks_find_each_mistake_over_ranks_and_pass_what_is_right(rank, mistakes):
    """The checks that find them: the whole self-test is `losscli self-test checks --ranks 2`."""
    assert mistakes[rank]["first to fail"] == {
        "wrong:smoothing alone": "value",
        "wrong:no maximum": "row_values",
        "wrong:maximum alone": "value",
        "wrong:sum alone": "value",
        "wrong:softmax alone": "input_gradient",
        "wrong:target off": "value",
        "wrong:share counted": "value",
        "reference": "",
        "honest:three collectives": "",
    }
    of_custom = mistakes[rank]["custom"]
    assert "does not run over ranks" in of_custom.pop("memory")
    assert of_custom == dict.fromkeys(
        ("value", "input_gradient", "retained", "wrong_targets"), "pass"
    )
