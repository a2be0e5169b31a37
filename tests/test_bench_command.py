"""`losscli bench` from its arguments to its exit code."""

import io
import json
import os
import sys

import pytest
import torch

from losscli.bench import limit, runner
from losscli.bench.conditions import Unknown
from losscli.cli.main import run
from losscli.errors import UnfitError
from losscli.implementations import IMPLEMENTATIONS, Implementation
from losscli.operators import loading

QUICK = (
    "--device",
    "cpu",
    "--size",
    "8x8",
    "--cache",
    "warm",
    "--max-time",
    "1ms",
    "--processes",
    "1",
)

VERIFY = ("--size", "8x8", "--dtype", "float32", "--reduction", "mean", "--check", "value")


def bench(*arguments):
    return run(["bench", *QUICK, *arguments])


@pytest.fixture(autouse=True)
def _no_probe(monkeypatch):
    """Build no probe, and nothing ahead: these tests need no memory limit."""

    def refuse(device):
        raise UnfitError("there is no compiler.")

    monkeypatch.setattr(limit.Limits.__init__, "__defaults__", (refuse,))
    monkeypatch.setattr(loading, "build_ahead", lambda targets: None)


@pytest.fixture(autouse=True)
def _quiet_machine(monkeypatch):
    monkeypatch.setattr(runner, "look_at", lambda device: Unknown("a test"))


@pytest.fixture
def implementation(monkeypatch):
    def register(function):
        entry = Implementation("theirs", "", lambda case: function)
        monkeypatch.setitem(IMPLEMENTATIONS, "theirs", entry)

    return register


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


def test_an_implementation_that_a_loss_lacks_is_skipped_beside_those_that_are_timed(capsys):
    arguments = ("--loss", "hinge", "--impl", "reference,functional", "--pass", "forward")
    assert bench(*arguments, "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)["results"]
    assert [(r["implementation"], r["status"]) for r in found] == [
        ("reference", "ok"),
        ("functional", "skipped"),
    ]


def test_without_a_probe_results_lack_only_the_limit(capsys):
    arguments = ("--loss", "mse", "--impl", "reference", "--pass", "forward", "--format", "json")
    assert bench(*arguments) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert (result["status"], result["limit_gbps"]) == ("ok", None)
    assert result["reason"].endswith("; limit not measured: there is no compiler")


def test_options_apply_to_each_table_of_a_config(capsys, config):
    path = config(
        "{losses: mse, implementations: reference, passes: forward, tables:"
        " [{title: one, sizes: 4}, {title: two, sizes: 9, timing: {max_time: 20s}}]}"
    )
    assert bench("-c", path, "--format", "json") == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [(r["table"], r["case"]["shape"]) for r in results] == [("one", [8, 8]), ("two", [8, 8])]


@pytest.mark.parametrize("given", [(), ("--columns", "extra,max")])
def test_columns_of_a_config_are_those_of_its_table_unless_named(capsys, config, given):
    path = config("{losses: mse, sizes: 8, implementations: reference, columns: [p99, ulp]}")
    assert bench("-c", path, "--pass", "forward", *given) == 0
    header = next(line for line in capsys.readouterr().out.splitlines() if "impl" in line)
    assert header.split()[-2:] == (["extra", "max"] if given else ["p99", "ulp"])


def test_column_that_does_not_exist_gets_the_list_of_those_that_do(capsys):
    assert bench("--columns", "median,p98") == 2
    told = capsys.readouterr().err
    assert "unknown column 'p98'. Did you mean 'p99'? Choose from: median, p20-p80, min" in told


@pytest.mark.parametrize(
    "given",
    [
        ("--mode", "host", "--mode", "graph"),
        ("--mode", "host,graph"),
        ("--mode", "host, graph", "--mode", "host,host"),
    ],
    ids=" ".join,
)
def test_modes_of_the_command_line_repeat_and_take_commas(capsys, given):
    arguments = ("--loss", "mse", "--impl", "reference", "--pass", "forward", "--format", "json")
    assert bench(*arguments, *given) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [(r["mode"], r["status"]) for r in results] == [("host", "ok"), ("graph", "skipped")]


def test_a_mode_given_twice_in_a_config_is_run_once(capsys, config):
    path = config(
        "{losses: mse, sizes: 8, implementations: reference, timing: {mode: [host, host]}}"
    )
    assert bench("-c", path, "--pass", "forward", "--format", "json") == 0
    assert [r["mode"] for r in json.loads(capsys.readouterr().out)["results"]] == ["host"]


def test_without_the_reference_there_is_no_speedup(capsys):
    arguments = ("--loss", "mse", "--impl", "functional", "--pass", "forward", "--format", "json")
    assert bench(*arguments) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["speedup"] == {}


def test_a_wrong_implementation_exits_1(capsys, implementation, config):
    implementation(lambda prediction, target: (prediction - target).mean())
    path = config("{losses: mse, sizes: 8x8, implementations: [theirs, reference]}")
    assert bench("-c", path) == 1
    assert "FAILED mse 8x8 float32 mean, theirs, forward: " in capsys.readouterr().out


def test_a_run_in_which_no_case_fits_exits_4(capsys):
    assert bench("--size", "1024Kx1024K", "--impl", "reference", "--loss", "mse") == 0
    assert run(["bench", "--device", "cpu", "--size", "1024Kx1024K", "--impl", "reference"]) == 4
    captured = capsys.readouterr()
    assert "skipped reference" in captured.out
    assert captured.err.startswith("losscli: error: nothing could run: needs ")


def test_an_interrupt_reports_what_was_finished_and_exits_130(capsys, implementation, config):
    calls = []

    def interrupted(input, target):
        calls.append(1)
        if input.requires_grad:
            raise KeyboardInterrupt
        return ((input - target) ** 2).mean()

    implementation(interrupted)
    path = config("{losses: mse, sizes: 8x8, implementations: theirs}")
    assert bench("-c", path, "--format", "json") == 130
    captured = capsys.readouterr()
    (result,) = json.loads(captured.out)["results"]
    assert (result["pass"], result["status"]) == ("forward", "ok")
    assert captured.err == "losscli: interrupted; the report has the finished results\n"


def test_output_option_writes_a_file(capsys, tmp_path):
    output = tmp_path / "results.csv"
    arguments = ("--loss", "mse", "--impl", "reference", "--pass", "forward")
    assert bench(*arguments, "--format", "csv", "-o", str(output)) == 0
    assert output.read_text().startswith("loss,shape,")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(
        "limit not measured: there is no compiler\nreference: forward with a "
    )
    assert captured.err.endswith(f"\nlosscli: wrote {output}\n")


def test_output_dash_is_standard_output(capsys):
    arguments = ("--loss", "mse", "--impl", "reference", "--pass", "forward")
    assert bench(*arguments, "-o", "-") == 0
    captured = capsys.readouterr()
    assert "mse 8x8" in captured.out
    assert captured.err == ""


def test_failure_is_on_stderr_if_the_report_is_a_file(capsys, tmp_path, implementation, config):
    implementation(lambda prediction, target: (prediction - target).mean())
    path = config("{losses: mse, sizes: 8x8, implementations: theirs, passes: forward}")
    assert bench("-c", path, "-o", str(tmp_path / "table")) == 1
    assert "FAILED mse 8x8 float32 mean, theirs, forward: " in capsys.readouterr().err


def test_an_interrupt_before_the_first_result_leaves_an_old_report(
    capsys, tmp_path, implementation, config
):
    def interrupted(input, target):
        raise KeyboardInterrupt

    implementation(interrupted)
    output = tmp_path / "table"
    output.write_text("old")
    path = config("{losses: mse, sizes: 8x8, implementations: theirs}")
    assert bench("-c", path, "-o", str(output)) == 130
    assert bench("-c", path) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "losscli: interrupted before the first result\n" * 2
    assert output.read_text() == "old"


ONE = ("--loss", "mse", "--impl", "reference", "--pass", "forward", "--format", "json")


def test_the_threads_are_set_and_recorded(capsys):
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            assert bench(*ONE, "--threads", str(threads)) == 0
            assert json.loads(capsys.readouterr().out)["environment"]["threads"] == threads
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_a_run_is_saved_beside_its_report(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path))
    assert bench(*ONE, "--save", "base") == 0
    captured = capsys.readouterr()
    assert captured.err == "losscli: saved base\n"
    header, *results = map(json.loads, (tmp_path / "runs/base.jsonl").read_text().splitlines())
    assert {**header, "results": results} == json.loads(captured.out)
    assert os.listdir(tmp_path / "runs") == ["base.jsonl"]


def test_a_saved_run_is_not_overwritten_unless_forced(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path))
    assert bench(*ONE, "--save", "base") == 0
    saved = tmp_path / "runs/base.jsonl"
    before = saved.read_bytes()
    capsys.readouterr()
    assert bench(*ONE, "--save", "base") == 2
    assert capsys.readouterr().err == (
        "losscli: error: a run named 'base' is already saved. Choose another name, or add "
        "--force to overwrite it.\n"
    )
    assert saved.read_bytes() == before
    assert bench(*ONE, "--save", "base", "--force") == 0
    assert saved.read_bytes() != before


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


@pytest.mark.parametrize(
    ("flags", "results"), [((), 2), (("--keep-going",), 2), (("--fail-fast",), 1)]
)
def test_failure_ends_the_run_only_with_fail_fast(capsys, implementation, config, flags, results):
    implementation(lambda prediction, target: (prediction - target).mean())
    path = config("{losses: mse, sizes: 8x8, implementations: theirs}")
    assert bench("-c", path, "--format", "json", *flags) == 1
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["results"]) == results
    assert ("stopped at the first failure" in captured.err) == (flags == ("--fail-fast",))


def test_in_github_actions_the_step_gets_a_summary(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    assert bench(*ONE) == 0
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("## losscli bench\n\n")
    assert "| mse 8x8" in summary
    assert run(["verify", "--device", "cpu", "--impl", "reference", "--loss", "mse", *VERIFY]) == 0
    assert (tmp_path / "summary.md").read_text().count("## losscli verify\n\n") == 1


def test_a_dry_run_measures_nothing(capsys, monkeypatch):
    assert bench("--loss", "mse", "--impl", "reference", "--dry-run") == 0
    assert "mse 8x8 float32 mean" in capsys.readouterr().out


def test_run_with_every_row_excluded_exits_2(capsys, config):
    path = config("{losses: mse, sizes: 8x8, implementations: reference, exclude: [{device: cpu}]}")
    assert run(["bench", "-c", path, "--device", "cpu"]) == 2
    assert (
        "nothing is left to run: excluded 2 rows by the config's rule {device: cpu}. "
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--min-time", "2s", "--max-time", "1s"), "--min-time 2 s is longer than --max-time 1 s"),
        (
            ("--min-time", "3s"),
            "--min-time 3 s is longer than the config's max_time of 1 s. Add --max-time TIME",
        ),
        (("--max-time", "soon"), "'soon' is not a duration"),
        (("--confidence", "150%"), "'150%' is not a fraction"),
        (("--cache", "hot"), "unknown cache 'hot'"),
        (("--mode", "grap"), "unknown mode 'grap'. Did you mean 'graph'?"),
        (("--format", "xml"), "unknown format 'xml'"),
        (("-o", ""), "-o '' is an empty file name"),
        (
            ("--threads", "0"),
            "'0' is not a number of threads. Write a whole number from 1 to 1024.",
        ),
        (("--threads", "all"), "'all' is not a number of threads."),
        (("--save", "a/b"), "'a/b' cannot name a run."),
        (("--resume", "out.json"), "--resume needs -o PATH or --save NAME, where it writes"),
        (("--resume", "", "-o", "out"), "there is no run ''."),
        (("--resume", "no.json", "-o", "out"), "there is no run 'no.json'."),
    ],
)
def test_bad_options_exit_2(capsys, arguments, message):
    assert run(["bench", "--device", "cpu", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [((), 0, True), ((), 1, False), ((), 130, False), (("--loss", "mse"), 0, False)],
)
def test_bench_without_options_ends_with_what_to_try_next(monkeypatch, capsys, options, code, told):
    monkeypatch.setattr("losscli.cli.running.run_jobs", lambda *arguments, **options: code)
    monkeypatch.setenv("LOSSCLI_DEVICE", "cpu")
    assert run(["bench", *options]) == code
    assert ("losscli: next: `losscli bench --loss huber" in capsys.readouterr().err) is told
