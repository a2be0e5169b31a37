"""What checks of verify find when each of the ranks puts an implementation to them."""

from pathlib import Path

from losscli.implementations import CUSTOM, find_implementation
from losscli.ranks.group import join, leave
from losscli.ranks.place import Place
from losscli.ranks.placements import VOCABULARY
from losscli.runs.records import FAIL
from losscli.verify import ranks
from losscli.verify.checks import find_check
from losscli.verify.runner import split
from losscli.verify.selftest.run import plan_of_ranks
from tests.handmade import case_of

CHECKS = ("value", "gradients", "extreme_values")
OF_CUSTOM = ("value", "gradients", "retain_graph", "out_of_range_classes", "memory")


def find_mistakes(place: Place) -> dict[str, dict[str, str]]:
    """Return which check fails each implementation of the self-test, and how the kernels do.

    The environment has to say where the ranks meet; they may have no other group.
    """
    group = join(place, "cpu")
    tests = plan_of_ranks("cpu", place.size)
    usual = {"distribution": "normal", "scale": 2.0, "params": {"label_smoothing": 0.1}}
    case = case_of("cross_entropy", (37, 101), **usual, ranks=place.size, placement=VOCABULARY)
    found = {
        "first to fail": {
            test.implementation.name: next(
                (
                    each.check
                    for each in _results(group, test.case, test.implementation, CHECKS)
                    if each.status == FAIL
                ),
                "",
            )
            for test in tests
            if test.implementation.name != CUSTOM
        },
        CUSTOM: {
            each.check: each.reason or each.status
            for each in _results(group, case, find_implementation(CUSTOM), OF_CUSTOM)
        },
    }
    leave()
    names = [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]
    assert not [name for name in names if "gloo" in name], "threads of the group live on"
    return found


def _results(group, case, implementation, checks):
    trials = [(implementation, find_check(name)) for name in checks]
    for job in split(case, trials):
        yield from ranks.run(job, group)
