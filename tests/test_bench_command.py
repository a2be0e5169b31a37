import io
import json
import os
import sys

import pytest
import torch

from losscli.bench import limit, runner
from losscli.bench.conditions import Conditions
from losscli.cli.main import run
from losscli.errors import UnfitError
from losscli.operators import loading

QUICK = ["--device", "cpu", "--size", "8x8", "--cache", "warm", "--max-time", "1ms"]
VERIFY = ("--size", "8x8", "--dtype", "float32", "--reduction", "mean", "--check", "value")
FORWARD = ("--loss", "mse", "--impl", "reference", "--pass", "forward")
ONE = (*FORWARD, "--format", "json")


def bench(*arguments):
    return run(["bench", *QUICK, "--processes", "1", *arguments])


@pytest.fixture(autouse=True)
def _without_probe(monkeypatch):
    """Build no probe, and nothing ahead: these tests need no memory limit."""

    def refuse(device):
        raise UnfitError("there is no compiler.")

    monkeypatch.setattr(limit.Limits.__init__, "__defaults__", (refuse,))
    monkeypatch.setattr(loading, "build_ahead", lambda targets: None)
    monkeypatch.setattr(runner, "look_at", lambda device: Conditions("a test"))


@pytest.fixture
def results(capsys):
    """Return a function that runs bench, and returns the results of its record."""

    def results(*arguments, code=0):
        assert bench(*arguments, "--format", "json") == code
        return json.loads(capsys.readouterr().out)["results"]

    return results


@pytest.fixture
def theirs(config, implementation):
    """Return a function that writes a config for an implementation of its own."""

    def theirs(function, more=""):
        implementation(function)
        return config(f"{{losses: mse, sizes: 8x8, implementations: theirs{more}}}")

    return theirs


def wrong(input, target):
    return (input - target).mean()


def test_json_holds_both_passes_of_each_implementation(capsys):
    assert bench("--loss", "mse", "--impl", "reference,functional", "--format", "json") == 0
    captured = capsys.readouterr()
    record = json.loads(captured.out)
    assert [(r["implementation"], r["pass"], r["status"]) for r in record["results"]] == [
        (name, pass_, "ok")
        for pass_ in ("forward", "forward_backward")
        for name in ("reference", "functional")
    ]
    assert record["command"][0] == "losscli"
    assert record["environment"]["device"] == "cpu"
    assert captured.err == ""  # no bar where there is no terminal


def test_an_implementation_that_a_loss_lacks_is_skipped_beside_those_that_are_timed(results):
    found = results("--loss", "hinge", "--impl", "reference,functional", "--pass", "forward")
    assert [(r["implementation"], r["status"]) for r in found] == [
        ("reference", "ok"),
        ("functional", "skipped"),
    ]


def test_columns_of_a_config_are_those_of_its_table_unless_named(capsys, config):
    path = config("{losses: mse, sizes: 8, implementations: reference, columns: [p99, ulp]}")
    named = (
        ((), "p99 ulp"),
        (("--columns", "memory,max"), "temp max"),
        (("--columns", "extra,max"), "temp max"),  # its former name
    )
    for given, columns in named:
        assert bench("-c", path, "--pass", "forward", *given) == 0
        header = next(line for line in capsys.readouterr().out.splitlines() if "impl" in line)
        assert header.split()[-2:] == columns.split()


def test_modes_repeat_and_take_commas_and_run_once(results, config):
    for given in ("--mode host --mode graph", "--mode host,graph --mode host,host"):
        found = results(*FORWARD, *given.split())
        assert [(r["mode"], r["status"]) for r in found] == [("host", "ok"), ("graph", "skipped")]
    path = config(
        "{losses: mse, sizes: 8, implementations: reference, timing: {mode: [host, host]}}"
    )
    assert [r["mode"] for r in results("-c", path, "--pass", "forward")] == ["host"]


def test_a_run_in_which_no_case_fits_exits_4(capsys):
    large = ("--size", "1024Kx1024K", "--impl", "reference")
    assert bench(*large, "--loss", "mse") == 0
    assert run(["bench", "--device", "cpu", *large]) == 4
    captured = capsys.readouterr()
    assert "skipped reference" in captured.out
    assert captured.err.startswith("losscli: error: nothing could run: needs ")


def test_an_interrupt_reports_what_was_finished_and_exits_130(capsys, theirs):
    def interrupted(input, target):
        if input.requires_grad:
            raise KeyboardInterrupt
        return ((input - target) ** 2).mean()

    assert bench("-c", theirs(interrupted), "--format", "json") == 130
    captured = capsys.readouterr()
    (result,) = json.loads(captured.out)["results"]
    assert (result["pass"], result["status"]) == ("forward", "ok")
    assert captured.err == "losscli: interrupted; the report has the finished results\n"


def test_an_interrupt_before_the_first_result_leaves_an_old_report(capsys, tmp_path, theirs):
    def interrupted(input, target):
        raise KeyboardInterrupt

    output = tmp_path / "table"
    output.write_text("old")
    path = theirs(interrupted)
    assert bench("-c", path, "-o", str(output)) == 130
    assert bench("-c", path) == 130
    assert capsys.readouterr() == ("", "losscli: interrupted before the first result\n" * 2)
    assert output.read_text() == "old"


def test_output_option_writes_a_file_or_standard_output(capsys, tmp_path):
    output = tmp_path / "results.csv"
    assert bench(*FORWARD, "--format", "csv", "-o", str(output)) == 0
    assert output.read_text().startswith("loss,shape,")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("forward with a warm cache: reference reaches ")
    assert "\n% of peak not measured: there is no compiler\n" in err
    assert err.endswith(f"\nlosscli: wrote {output}\n")
    assert bench(*FORWARD, "-o", "-") == 0
    captured = capsys.readouterr()
    assert "mse 8x8" in captured.out
    assert captured.err == ""


def test_a_wrong_implementation_exits_1_and_is_on_stderr_if_the_report_is_a_file(
    capsys, tmp_path, theirs
):
    path = theirs(wrong, ", passes: forward")
    told = "FAILED mse 8x8 float32 mean, theirs, forward: "
    assert bench("-c", path) == 1
    assert told in capsys.readouterr().out
    assert bench("-c", path, "-o", str(tmp_path / "table")) == 1
    assert told in capsys.readouterr().err


def test_failure_ends_the_run_only_with_fail_fast(capsys, theirs):
    path = theirs(wrong)
    for flags, count in (((), 2), (("--keep-going",), 2), (("--fail-fast",), 1)):
        assert bench("-c", path, "--format", "json", *flags) == 1
        captured = capsys.readouterr()
        assert len(json.loads(captured.out)["results"]) == count
        assert ("stopped at the first failure" in captured.err) == (flags == ("--fail-fast",))


def test_the_threads_are_set_and_recorded(capsys):
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            assert bench(*ONE, "--threads", str(threads)) == 0
            assert json.loads(capsys.readouterr().out)["environment"]["threads"] == threads
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_a_run_is_saved_beside_its_report_and_not_overwritten_unless_forced(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path))
    assert bench(*ONE, "--save", "base") == 0
    captured = capsys.readouterr()
    assert captured.err == "losscli: saved base\n"
    saved = tmp_path / "runs/base.jsonl"
    before = saved.read_text()
    header, *results = map(json.loads, before.splitlines())
    assert {**header, "results": results} == json.loads(captured.out)
    assert os.listdir(tmp_path / "runs") == ["base.jsonl"]
    assert bench(*ONE, "--save", "base") == 2
    assert capsys.readouterr().err == (
        "losscli: error: a run named 'base' is already saved. Choose another name, or add "
        "--force to overwrite it.\n"
    )
    assert saved.read_text() == before
    assert bench(*ONE, "--save", "base", "--force") == 0
    assert saved.read_text() != before


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 2)])
def test_on_a_terminal_save_asks_before_it_overwrites(tmp_path, monkeypatch, answer, code):
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/base.jsonl").write_text("before")
    answers = io.StringIO(answer)
    monkeypatch.setattr(answers, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", answers)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert bench(*ONE, "--save", "base") == code
    assert ((tmp_path / "runs/base.jsonl").read_text() == "before") == (code == 2)


def test_in_github_actions_the_step_gets_a_summary(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    assert bench(*ONE) == 0
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("## losscli bench\n\n")
    assert "| mse 8x8" in summary
    assert run(["verify", "--device", "cpu", "--impl", "reference", "--loss", "mse", *VERIFY]) == 0
    assert (tmp_path / "summary.md").read_text().count("## losscli verify\n\n") == 1


def test_bench_without_options_ends_with_what_to_try_next(monkeypatch, capsys):
    monkeypatch.setenv("LOSSCLI_DEVICE", "cpu")
    for code, options in ((0, []), (1, []), (130, []), (0, ["--loss", "mse"])):
        monkeypatch.setattr("losscli.cli.running.run_jobs", lambda *_, code=code, **__: code)
        assert run(["bench", *options]) == code
        told = "losscli: next: `losscli bench --loss huber" in capsys.readouterr().err
        assert told == (code == 0 and not options)
