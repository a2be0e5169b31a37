"""The differences of two machines, and those that make times incomparable."""

from losscli.machine.differences import differences, parts_ways

CPU = {"device": "cpu", "cpu": "A", "threads": 2, "torch": "2.13.0", "os": "Linux"}
GPU = CPU | {"device": "cuda:0", "gpu": "H200", "gpu_sms": 132, "gpu_driver": "580"}


def graded(before, **changes):
    return [(d.fact, d.decisive) for d in differences(before, before | changes)]


def test_differences_are_decisive_or_notes():
    assert differences(CPU, dict(CPU)) == differences(GPU, dict(GPU)) == []
    for before, fact, decisive in (
        (CPU, "cpu", True),
        (CPU, "threads", True),
        (GPU, "gpu", True),
        (GPU, "gpu_sms", True),  # a part of a GPU
        (GPU, "cpu", False),
        (GPU, "threads", False),
        (GPU, "gpu_driver", False),
        (CPU, "torch", False),
        (CPU, "os", False),
        (CPU, "commit", False),
    ):
        assert graded(before, **{fact: "other"}) == [(fact, decisive)], fact
    # Decisive ones come first, and what changes all the time is none.
    assert graded(CPU, torch="2.14.0", cpu="B") == [("cpu", True), ("torch", False)]
    assert graded(CPU, gpu_temperature=60, load_average=3.0) == []


def test_gpu_and_cpu_differ_only_by_device():
    (unlike,) = differences(CPU, GPU)
    assert (str(unlike), unlike.decisive) == ("device: cpu, then cuda", True)
    assert graded(GPU, device="cuda:1") == [("device", False)]


def test_unknown_fact_is_shown_as_unknown():
    (unlike,) = differences(GPU, GPU | {"gpu_driver": None})
    assert (str(unlike), unlike.decisive) == ("driver: 580, then unknown", False)


def test_resume_refuses_differences_that_need_a_new_run():
    for fact in ("cpu", "torch", "commit", "compiler", "os"):
        (unlike,) = differences(CPU, CPU | {fact: "other"})
        assert parts_ways(unlike) is (fact != "os")
