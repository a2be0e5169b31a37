"""A reference that is slower beside a candidate than without it: each time, or by chance."""

from itertools import chain, repeat

from msgspec.structs import replace

from losscli.bench.conditions import CpuConditions
from losscli.bench.plan import Task
from losscli.bench.statistics import summarize
from losscli.config.schema import Timing
from losscli.judge import against_loss
from losscli.judge.times import ROUNDS, busy_note, findings
from losscli.reasons import Code
from losscli.runs.records import OK, SKIPPED, BenchResult
from tests.handmade import case

OWN, OTHER, USUAL = "kernel.py", "reference", 1e-3
TASK = Task(case(device="cpu"), {"forward": (OWN, OTHER)}, Timing())


def result(name, seconds):
    if seconds is None:
        return BenchResult(TASK.case, name, "forward", SKIPPED, code=Code.INSUFFICIENT_MEMORY)
    return BenchResult(TASK.case, name, "forward", OK, seconds=summarize([seconds] * 10))


class Machine:
    """Times the reference beside a candidate and alone: each time as the next number says."""

    def __init__(self, beside, alone=(), own=USUAL):
        self.beside, self.alone = (chain(each, repeat(USUAL)) for each in (beside, alone))
        self.own, self.tasks = own, []

    def run(self, task):
        self.tasks.append(task.passes["forward"])
        if OWN in self.tasks[-1]:
            yield result(OWN, self.own)
            yield result(OTHER, next(self.beside))
        else:
            yield result(OTHER, next(self.alone))

    def findings(self, known):
        first = list(self.run(TASK))
        return [each[:2] for each in findings(self.run, TASK, first, OWN, OTHER, known)]


def test_a_reference_that_is_slower_each_time_beside_a_candidate_is_slowed_by_it():
    ((code, text),) = Machine([3 * USUAL] * ROUNDS).findings({})
    assert code == Code.INTERFERENCE
    assert "takes 3.00 times as long next to its process" in text
    # A machine that was busy for a while, and a little less speed, are no fault of a candidate.
    for seconds in ([3 * USUAL], [3 * USUAL] * (ROUNDS - 1), [1.6 * USUAL] * ROUNDS):
        assert not Machine(seconds).findings({})


def test_times_of_a_reference_are_taken_once_for_many_candidates():
    known = {}
    machines = [Machine([USUAL]) for _ in range(2)]
    assert not any(machine.findings(known) for machine in machines)
    assert [len(machine.tasks) for machine in machines] == [2, 1]


def test_a_reference_without_room_beside_a_candidate_is_timed_without_it():
    for own, codes in ((2 * USUAL, ["slower"]), (USUAL, [])):
        assert [code for code, _ in Machine([None], own=own).findings({})] == codes


def test_a_note_names_what_other_programs_used_while_times_were_measured():
    def results(*parts):
        return [replace(result(OWN, USUAL), conditions={"others": part}) for part in parts]

    quiet = (results(), results(None), results(0.0, 0.25), [result(OWN, USUAL)])
    assert [busy_note("cpu", each) for each in quiet] == [""] * 4
    for device, what in (("cpu", "cores"), ("cuda", "GPU")):
        told = busy_note(device, results(0.26, None, 0.63, 0.1))
        assert told.startswith(f"other programs used up to 63% of the {what} while times were ")


def test_the_verdict_on_a_file_that_was_timed_on_a_busy_machine_says_so(judged, monkeypatch):
    monkeypatch.setattr(against_loss, "QUICK_CHECKS", ("layouts",))
    monkeypatch.setattr(CpuConditions, "others", lambda self: 0.4)
    source = "def mse_loss(input, target): return (input - target).square().mean()"
    (note,) = [
        note
        for note in judged(source, timed=True, sizes=((64, 64),)).notes
        if note.startswith("other programs")
    ]
    assert note.startswith("other programs used up to 40% of the cores")
