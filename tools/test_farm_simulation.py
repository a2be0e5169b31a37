"""The farm on many simulated nodes: GPUs are used, and killed nodes cost no verdict."""

from tools.farm_simulation import Stages, read_stages, simulate

STAGES = (Stages(13.0, 6.0), Stages(7.5, 6.0), Stages(30.0, 5.0))
PER_GPU = 50


def test_gpus_of_two_nodes_judge_as_many_as_the_same_number_of_single_ones():
    one = simulate(PER_GPU, 1, STAGES, gpus=1)
    two = simulate(PER_GPU * 16, 2, STAGES)
    assert two.verdicts / two.seconds > 0.9 * 16 * one.verdicts / one.seconds


def test_four_judges_of_a_gpu_do_more_than_one_could():
    found = simulate(PER_GPU * 8, 1, STAGES)
    alone = sum(each.shared + each.alone for each in STAGES) / len(STAGES)
    assert found.verdicts / found.seconds > 1.5 * 8 / alone


def test_node_that_is_killed_every_minute_costs_no_verdict():
    found = simulate(PER_GPU * 16, 4, STAGES, kill_every=60.0)
    assert found.kills > 5
    assert (found.verdicts, found.lost) == (PER_GPU * 16, 0)


def test_stages_are_those_of_verdicts(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    path.write_text(
        '{"seconds": {"parse": 0.5, "build": 1, "small": 2, "checks": 3, "time": 4}}\n'
        '{"seconds": {"parse": 0.5}}\n'  # it was wrong
    )
    assert read_stages(path) == [Stages(6.5, 4.0), Stages(0.5, 0.0)]
