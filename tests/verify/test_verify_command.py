import itertools
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from losscli.cli import main
from losscli.cli.verify import command
from losscli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_UNFIT, EXIT_USAGE
from losscli.implementations import IMPLEMENTATIONS, Implementation
from losscli.losses import ELEMENT
from losscli.runs.records import VerifyResult
from losscli.verify import repeat, runner
from losscli.verify.checks import CHECKS
from losscli.verify.repeating import line
from tests.machinery import MACHINERY

SMALL = ["--device", "cpu", "--size", "8x24", "--dtype", "float32"]
MEAN = [*SMALL, "--loss", "mse", "--reduction", "mean", "--impl", "reference"]


def invoke(*arguments):
    """Run the command; exit codes are what it returns, as `losscli` takes them."""
    return CliRunner().invoke(command, arguments, standalone_mode=False, catch_exceptions=False)


@pytest.fixture
def wrong(monkeypatch):
    """`functional` computes a mean of its own: half of it."""
    legitimate = IMPLEMENTATIONS["functional"]

    def bind(case):
        loss = legitimate.bind(case)
        return lambda x, y: loss(x, y) / 2

    planted = Implementation("functional", "", bind)
    monkeypatch.setitem(IMPLEMENTATIONS, "functional", planted)
    return planted


def test_all_reductions_of_the_default_config_pass_with_the_reference():
    checks = "value,gradients,streams,graphs"
    chosen = [word for loss in MACHINERY for word in ("--loss", loss)]
    result = invoke(*SMALL, *chosen, "--impl", "reference", "--check", checks, "--format", "md")
    assert result.return_value == EXIT_OK
    lines = result.stdout.splitlines()
    check, *losses = (
        next(x for x in lines if x.startswith("|")).strip("|").replace("|", " ").split()
    )
    assert (check, set(losses)) == ("check", set(MACHINERY))
    top = next(number for number, line in enumerate(lines) if line.startswith("| case"))
    table = itertools.takewhile(lambda line: line.startswith("|"), lines[top + 2 :])
    rows = [line.split("|")[1:-1] for line in table]
    cases = [row[0].strip() for row in rows]
    named = list(itertools.accumulate(cases, lambda above, own: own or above))
    assert list(dict.fromkeys(case.split()[0] for case in named)) == losses
    # PyTorch rounds a margin of 0.1 to float32: near the kink that is what it is warned of.
    verdicts = [row[-1].split()[0] for row in rows]
    assert set(verdicts) <= {"pass", "WARN"}
    warned = {case for case, verdict in zip(named, verdicts, strict=True) if verdict == "WARN"}
    assert {case.split()[0] for case in warned} <= {"hinge"}
    assert " 0 failed, 2 skipped;" in result.stdout


def test_json_has_the_record_of_a_run(tmp_path):
    output = tmp_path / "verify.json"
    result = invoke(*MEAN, "--format", "json", "-o", str(output))
    assert (result.return_value, result.stdout) == (EXIT_OK, "")
    record = json.loads(output.read_text())
    assert (record["schema_version"], record["kind"]) == (2, "verify")
    statuses = {r["check"]: r["status"] for r in record["results"]}
    assert statuses.keys() == {*CHECKS, "input_gradient", "target_gradient"} - {
        "gradients",
        "branches",  # mse has none
        "numeric",  # in float64 alone
        "large_outputs",  # without a reduction
        "rounding",  # of 16 bits
        "float64_sums",  # of who promises right ones
        "allocations",  # of who plans no temporaries
        *(check.name for check in CHECKS.values() if ELEMENT not in check.units),
    }
    assert {check for check, status in statuses.items() if status not in ("pass", "warn")} == {
        "streams",
        "graphs",
        "captured_backward",
    }
    assert record["results"][0]["reference_error"]["value_ulp"] is not None


def test_a_wrong_implementation_exits_1_and_names_the_case(wrong):
    result = invoke(*MEAN, "--impl", "functional", "--check", "value,gradients,layouts,parts")
    assert result.return_value == EXIT_FAILED
    assert "FAIL mse 1x1 float32 mean normal, functional, value: expected " in result.stdout
    assert ". Shrunk from mse 8x24 float32 mean normal" in " ".join(result.stdout.split())
    assert "\nfrom losscli.verify import repeat; repeat(" in result.stdout
    assert "more checks fail (-v): " in result.stdout
    assert result.stdout.startswith("verify: ")


def test_one_pass_runs_only_its_checks():
    result = invoke(*MEAN, "--pass", "forward", "--format", "json")
    assert [r["check"] for r in json.loads(result.stdout)["results"]] == ["value"]


@pytest.mark.parametrize(
    ("named", "run"),
    [
        (["reference", "custom", "custom:tree"], {"custom", "custom:tree"}),
        (["functional", "reference"], {"functional", "reference"}),
    ],
)
def test_without_impl_losscli_kernels_or_all_of_the_config_run(monkeypatch, tmp_path, named, run):
    bind = IMPLEMENTATIONS["reference"].bind
    for name in named:
        monkeypatch.setitem(IMPLEMENTATIONS, name, Implementation(name, "", bind))
    config = tmp_path / "own.yaml"
    config.write_text(f"losses: [mse]\nsizes: [8]\nimplementations: [{', '.join(named)}]\n")
    result = invoke("-c", str(config), "--device", "cpu", "--pass", "forward", "--format", "json")
    assert {r["implementation"] for r in json.loads(result.stdout)["results"]} == run


def test_a_case_that_does_not_fit_is_skipped_and_the_run_goes_on():
    result = invoke(*MEAN, "--size", "1024Kx1024K", "--check", "value,gradients,layouts,sizes")
    assert result.return_value == EXIT_OK
    skipped = "skipped reference (mse 1048576x1048576 float32 mean normal): needs 32.0 TiB, cpu"
    assert skipped in " ".join(result.stdout.split())
    assert " passed, 0 warnings, 0 failed, " in result.stdout


def test_interrupt_reports_finished_results(monkeypatch):
    check = CHECKS["gradients"]

    def interrupted(problem, subject, tally):
        raise KeyboardInterrupt
        yield

    monkeypatch.setitem(CHECKS, "gradients", replace(check, judge=interrupted))
    result = invoke(*MEAN)
    assert result.return_value == EXIT_INTERRUPTED
    assert result.stdout.startswith("verify: 1 check of 1 case passed")
    assert result.stderr == "losscli: interrupted; the report has the finished results\n"


def test_dry_run_lists_the_cases_and_runs_none(monkeypatch):
    monkeypatch.setattr(runner, "run", None)
    result = invoke(*MEAN, "--dry-run")
    assert result.return_value == EXIT_OK
    assert "mse 8x24 float32 mean normal" in result.stdout


@pytest.mark.parametrize(
    "given", [("--check", "special_values", "--check", "value"), ("--check", "specials,value")]
)
def test_check_option_repeats_takes_commas_and_runs_only_these(given):
    result = invoke(*MEAN, *given, "--format", "json")
    assert result.return_value == EXIT_OK
    assert [one["check"] for one in json.loads(result.stdout)["results"]] == [
        "value",
        "special_values",
    ]


OF_FLOAT64 = "numeric applies only to float64, and a formula without constant factors."
REFUSED = {
    "--check layout": "unknown check 'layout'. Did you mean 'layouts'?",
    "--check layout --list": "unknown check 'layout'. Did you mean 'layouts'?",
    "--check layout --dry-run": "unknown check 'layout'. Did you mean 'layouts'?",
    "--check numeric": OF_FLOAT64,
    "--quick -c thorough": "--quick runs quick.yaml, but -c asks for thorough. Leave out one",
    "-c nothing.yaml": "nothing is left to run: excluded 2 rows by the config's rule {loss: mse}. ",
}


def test_commands_that_cannot_run_say_why_in_one_message(refused, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    nothing = "losses: [mse]\nsizes: [8]\nexclude: [{loss: mse}]\n"
    (tmp_path / "nothing.yaml").write_text(nothing)
    for arguments, message in REFUSED.items():
        of = ["--device", "cpu"] if "-c" in arguments.split() else MEAN
        refused(["verify", *of, *arguments.split()], message)
    assert main.run(["verify", *MEAN, "--check", "numeric", "--dry-run"]) == EXIT_USAGE
    assert OF_FLOAT64 in capsys.readouterr().err
    assert main.run(["verify", *SMALL, "--loss", "hinge", "--impl", "functional"]) == EXIT_UNFIT
    unfit = "nothing could run: the reference of hinge is already the usual PyTorch code"
    assert unfit in capsys.readouterr().err


def test_quick_runs_the_cases_of_the_shipped_quick_config():
    quick, named = (invoke("--list", *option) for option in (["--quick"], ["-c", "quick"]))
    assert quick.return_value == EXIT_OK
    assert quick.stdout == named.stdout != invoke("--list").stdout


def test_dry_run_counts_the_chosen_checks():
    result = invoke(*MEAN, "--size", "64x48", "--check", "value,layouts", "--dry-run")
    assert result.stdout.splitlines()[-1] == "--check value,layouts: 3 checks to run"


def test_a_run_without_a_result_is_a_usage_error(monkeypatch, refused):
    monkeypatch.setitem(CHECKS, "value", replace(CHECKS["value"], judge=lambda *_: iter(())))
    told = "no check applies to any configured case"
    refused(["verify", *MEAN, "--check", "value"], told)


def test_a_file_that_an_expression_calls_is_repeated_with_it(tmp_path, capsys, make_case):
    path = tmp_path / "fused.py"
    path.write_text("def fused(a, b, twice): return (twice * (a - b) ** 2).mean(), None")
    call = "fused(input, target, 1.0)[0]"
    repeat(str(path), "value", "mse", (8, 24), call=call)
    assert capsys.readouterr().out.startswith("PASS mse 8x24 float32 mean, ")
    result = VerifyResult(make_case("mse"), str(path), "value", "fail")
    assert line(result, call).endswith(f"seed=0, call={call!r})")
