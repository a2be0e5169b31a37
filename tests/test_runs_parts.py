import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from losscli.cli import main
from losscli.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UsageError
from losscli.render.records import render
from losscli.runs.encoding import json_line
from losscli.runs.journal import read_unfinished
from losscli.runs.merge import merge, missing_parts
from losscli.runs.parts import Part, deal, parse_part
from losscli.runs.reading import read_run
from losscli.runs.records import BenchResult
from tests.fabricated import elsewhere, machine
from tests.judging import RIGHT
from tests.parameters import SLOW

CONFIG = """
losses: [mse, hinge]
sizes: [4, 9, 16, 25]
implementations: [reference, functional]
timing: {min_time: 1ms, max_time: 1ms, cache: warm, processes: 1}
"""


WRONG = """
def mse_loss(input, target):
    return ((input - target) ** 2).mean() + 1
"""


def dealt(seconds, count):
    """Return the items of each part, of items that are their own case."""
    items, every = range(len(seconds)), [Part(number, count) for number in range(1, count + 1)]
    return [deal(items, part, case=lambda n: n, seconds=seconds.__getitem__) for part in every]


def test_each_item_is_in_one_part_in_its_order():
    for parts, count in (
        (dealt([5.0, 1.0, 1.0, 9.0, 2.0, 2.0, 7.0], 3), 7),
        (dealt([float(n % 7) for n in range(40)], 4), 40),
    ):
        assert sorted(item for part in parts for item in part) == list(range(count))
        assert all(part == sorted(part) for part in parts)


def test_parts_take_as_long_as_each_other():
    seconds = [1.5**n for n in range(20)] + [3.0] * 1000
    loads = [sum(seconds[item] for item in part) for part in dealt(seconds, 2)]
    assert max(loads) < 1.01 * min(loads)


def test_items_of_a_case_stay_together():
    items, every = ["a1", "b1", "a2", "c1", "b2"], [Part(number, 3) for number in (1, 2, 3)]
    parts = [deal(items, part, case=lambda i: i[0], seconds=lambda i: 1.0) for part in every]
    assert parts == [["a1", "a2"], ["b1", "b2"], ["c1"]]


def test_part_without_a_case_is_refused_and_text_that_is_no_part():
    with pytest.raises(UsageError, match=r"--part 3/3 has no case, because there are only 2\. "):
        dealt([1.0, 1.0], 3)
    for text in ("", "3", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "a/b", "1/99999"):
        with pytest.raises(UsageError, match="is not a part of a run"):
            parse_part(text)


def part_of(run, number, count, **changes):
    """Return a part of a run as ``--part`` measures it."""
    results = deal(
        run.results,
        Part(number, count),
        case=lambda result: result.case,
        seconds=lambda result: result.case.elements,
    )
    part = {"parts": (f"{number}/{count}",), "results": tuple(results)}
    return replace(run, **part | {"plan": "a plan", "result_count": len(results)} | changes)


@pytest.fixture
def run():
    return machine(1)


@pytest.fixture
def parts(run):
    return {f"{number}.json": part_of(run, number, 3) for number in (1, 2, 3)}


def by_row(run):
    return {(r.case, r.pass_, r.implementation): r for r in run.of(BenchResult)}


def test_parts_are_joined_to_the_run_that_they_are_parts_of(run, parts):
    found = merge(parts)
    assert by_row(found) == by_row(run)
    assert len(found.results) == len(run.results)
    assert (found.parts, found.unfinished, missing_parts(found)) == ((), False, [])
    assert replace(found, results=(), plan="", result_count=0) == replace(run, results=())
    assert merge(dict(reversed(parts.items()))) == found


def test_joined_record_says_which_parts_it_has_and_takes_the_rest_later(parts):
    third = {"3.json": parts.pop("3.json")}
    some = merge(parts)
    assert (some.parts, missing_parts(some)) == (("1/3", "2/3"), ["3/3"])
    assert merge({"some.json": some} | third) == merge(parts | third)
    lost = replace(some, results=some.results[:-1])
    with pytest.raises(UsageError, match=r"some\.json is damaged: .* of part 1/3, 2/3, and"):
        merge({"some.json": lost} | third)


def test_command_of_the_joined_run_is_that_of_the_whole(parts):
    expected = ("LOSSCLI_BENCH_SEED=1", "losscli", "bench", "-c", "full.yaml")
    for given in (
        "--part {0}/3 -c full.yaml --format json -o v{0}.json",
        "-o v{0}.json --format=json --part={0}/3 -c full.yaml",
        "-ov{0}.json -c full.yaml --save part{0} --force",
        "--resume part{0} --output v{0}.json -c full.yaml",
    ):
        for number, name in enumerate(parts, 1):
            words = f"LOSSCLI_BENCH_PART=1/3 LOSSCLI_BENCH_SEED=1 losscli bench {given}"
            parts[name] = replace(parts[name], command=tuple(words.format(number).split()))
        for each in (parts, dict(reversed(parts.items()))):
            assert merge(each).command == expected


ALIKE = "Only the parts of one run can be joined"
COUNT = r"2\.json is damaged: it has (\d+) results of part 2/3, and says that it has (?!\1)\d+\."
CHANGED: dict[str, dict[str, Any]] = {
    r"1\.json and 2\.json both have part 1/3\. Leave one of them out\.": {"parts": ("1/3",)},
    r"2\.json says twice that it has part 2/3\. Merge the": {"parts": ("2/3", "3/3", "2/3")},
    rf"2\.json is a whole run, measured without --part\. {ALIKE}": {"parts": ()},
    rf"1\.json is one of 3 parts, 2\.json one of 4\. {ALIKE}": {"parts": ("2/4",)},
    rf"1\.json is from `losscli bench`, 2.*`losscli verify`\. {ALIKE}": {"kind": "verify"},
    rf"different configs: they are from `losscli bench` and .*{ALIKE}": {"plan": "another"},
    r"2\.json was interrupted, .* part 2/3\. Finish it with --resume": {"unfinished": True},
}


def test_merge_refuses_records_that_are_no_parts_of_one_run(parts):
    second = parts["2.json"]
    changed = {message: replace(second, **changes) for message, changes in CHANGED.items()}
    changed[COUNT] = replace(second, results=second.results[1:])
    other_cpu = r"CPU: A CPU, then Another CPU\. --mixed joins them"
    changed[other_cpu] = elsewhere(second, cpu="Another CPU")
    for message, other in changed.items():
        with pytest.raises(UsageError, match=message):
            merge(parts | {"2.json": other})
    for fact in ("losscli", "commit", "torch", "compiler"):
        others = parts | {"2.json": elsewhere(parts["2.json"], **{fact: "9.9"})}
        for mixed in (False, True):
            with pytest.raises(UsageError, match=r"2\.json have different software, .*9\.9"):
                merge(others, mixed=mixed)


def test_mixed_run_says_of_each_time_which_machine_it_is_from(parts):
    parts["2.json"] = elsewhere(parts["2.json"], cpu="Another CPU")
    found = merge(parts, mixed=True)
    assert found.environment["cpu"] == "A CPU or Another CPU"
    machines = {row: result.conditions["machine"] for row, result in by_row(found).items()}
    for name, machine_name in (("1.json", "A CPU"), ("2.json", "Another CPU")):
        assert {machines[row] for row in by_row(parts[name])} == {machine_name}


def write(folder, runs):
    for name, run in runs.items():
        (folder / name).write_text(json.dumps(run.to_json()))
    return list(runs)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path / "data"))
    return tmp_path


def merged(folder, parts, *options, output="all.json"):
    command = ["runs", "merge", *options, *write(folder, parts), "-o", output]
    assert main.run(command) == EXIT_OK
    return output


def test_command_writes_a_record_that_is_read_as_any_other(folder, run, parts, capsys):
    for output in ("all.json", "all.jsonl"):
        merged(folder, parts, output=output)
        assert f"losscli: wrote {output}\n" in capsys.readouterr().err
        found = read_run(Path(output), "bench")
        assert by_row(found).keys() == by_row(run).keys()
        expected = replace(merge(parts), headline=found.headline)
        assert (found.to_json(), found.plan) == (expected.to_json(), "a plan")
        assert main.run(["compare", output, output]) == EXIT_OK
        assert main.run(["report", output, "-o", "page.html"]) == EXIT_OK


def test_command_names_missing_parts_and_a_mixed_run_is_compared_with_no_other(
    folder, parts, capsys
):
    second = parts.pop("2.json")
    merged(folder, parts)
    assert "losscli: part 2/3 is missing: merge it with this record" in capsys.readouterr().err
    merged(folder, parts | {"2.json": elsewhere(second, cpu="Another CPU")}, "--mixed")
    assert main.run(["compare", "all.json", "all.json"]) == EXIT_USAGE
    assert "different machines: several, then several" in capsys.readouterr().err


def appended(part, other):
    return part | {"results": part["results"] + other["results"][:1]}


ALTERED = {
    "cut off": (lambda part, other: json.dumps(part)[:-20], "2.json is cut off or damaged: "),
    "empty": (lambda part, other: "", "'2.json' is not a record of losscli"),
    "no text": (lambda part, other: "\udcff" + json.dumps(part), "'2.json' is not a result of"),
    "twice": (lambda part, other: json.dumps(part) * 2, "2.json is cut off or damaged: "),
    "type": (lambda part, other: part | {"parts": "2/3"}, "2.json: the header is not valid: "),
    "no part": (lambda part, other: part | {"parts": ["3/2"]}, "'3/2' is not a part of a run."),
    "lost": (lambda part, other: part | {"results": part["results"][1:]}, "2.json is damaged: "),
    "of another": (
        lambda part, other: appended(part, other) | {"result_count": part["result_count"] + 1},
        "1.json and 2.json both have results of mse ",
    ),
    "repeated": (lambda part, other: appended(part, part), ": it repeats result 1 "),
    "software": (lambda part, other: part | {"environment": {}}, "have different software"),
    "later": (lambda part, other: part | {"schema_version": 99}, "2.json was written by a later"),
}


WRONG_ARGUMENTS = {
    "merge": "name the parts to join: losscli runs merge RUN...",
    "merge 1.json 1.json": "a run is named twice. Name each part once.",
    "merge 1.json 4.json": "there is no run '4.json'.",
    "merge 1.json verdicts.jsonl": "verdicts.jsonl is not a run of `losscli bench` or",
    "merge 1.json -o 1.json": "-o '1.json' is the part '1.json' itself.",
    "merge 1.json -o all.md": "-o 'all.md' ends in neither .json nor .jsonl",
    "merge 1.json --format csv": "a merged record is written as json or jsonl, not as csv.",
    "--mixed": "--mixed is for `losscli runs merge`",
}


def test_altered_part_or_wrong_arguments_are_one_message(folder, parts, refused):
    for alter, message in ALTERED.values():
        names = write(folder, parts)
        altered = alter(*(parts[name].to_json() for name in ("2.json", "1.json")))
        text = altered if isinstance(altered, str) else json.dumps(altered)
        Path("2.json").write_bytes(text.encode(errors="surrogateescape"))
        refused(["runs", "merge", *names, "-o", "all.json"], message)
        assert not Path("all.json").exists()
    write(folder, parts)
    Path("verdicts.jsonl").write_text(f"{json_line(RIGHT.to_json())}\n")
    for arguments, message in WRONG_ARGUMENTS.items():
        refused(f"runs {arguments}", message)
    of_a_list = "--part 1/2 is for a run; --list and --dry-run list all parts"
    for command, listing in itertools.product(("bench", "verify"), ("--list", "--dry-run")):
        refused(f"{command} --part 1/2 {listing}", of_a_list)


def run_part(command, part, *arguments):
    name = f"{command}{part[0]}.json"
    given = [command, "-c", "config.yaml", "--part", part, "--device", "cpu", *arguments]
    assert main.run([*given, "--format", "json", "-o", name]) == EXIT_OK
    return name


def test_journal_of_a_killed_part_is_refused(parts):
    header, *lines = render(parts["1.json"], "jsonl").splitlines(keepends=True)
    journal = Path("part.json.journal.jsonl")
    begun = {**json.loads(header), "unfinished": True, "result_count": 0}
    journal.write_text("".join([json.dumps(begun) + "\n", *lines[:3]]))
    with pytest.raises(UsageError, match=r"journal\.jsonl was interrupted, .*of part 1/3\."):
        merge({str(journal): read_run(journal, "bench")})


@SLOW
@pytest.mark.parametrize("command", ["bench", "verify"])
def test_part_that_stopped_at_its_first_failure_is_refused(folder, command, capsys):
    Path("config.yaml").write_text(CONFIG)
    Path("wrong.py").write_text(WRONG)
    given = f"{command} -c config.yaml --part 1/2 --device cpu --loss mse --impl wrong.py"
    options = "--fail-fast --format json -o part.json"
    assert main.run([*given.split(), *options.split()]) == EXIT_FAILED
    with pytest.raises(UsageError, match=r"part\.json was interrupted, or stopped at a failure: "):
        merge({"part.json": read_run(Path("part.json"), command)})


def test_bench_in_parts_measures_each_case_once(folder, capsys):
    Path("config.yaml").write_text(CONFIG)
    names = [run_part("bench", part) for part in ("1/2", "2/2")]
    found = merge({name: read_run(Path(name), "bench") for name in names})
    assert len(found.results) == len(by_row(found)) == 2 * 4 * 2 * 2
    assert all(read_run(Path(name), "bench").results for name in names)
    path = Path(names[0])
    other = replace(read_run(path, "bench"), parts=("2/2",))
    with pytest.raises(UsageError, match="was begun with --part 1/2, and this run has --part 2/2"):
        read_unfinished(path, other, host=False)


def test_verify_in_parts_runs_each_check_once(folder, capsys):
    Path("config.yaml").write_text(CONFIG)
    names = [run_part("verify", part, "--check", "value") for part in ("1/2", "2/2")]
    found = read_run(Path(names[0]), "verify")
    assert found.result_count == len(found.results) > 1
    assert main.run(["runs", "merge", *names, "-o", "all.json"]) == EXIT_OK
    whole = "verify -c config.yaml --check value --device cpu --format json -o whole.json"
    assert main.run(whole.split()) == EXIT_OK
    rows = [
        sorted(str({**r, "error": None}) for r in json.loads(Path(name).read_text())["results"])
        for name in ("all.json", "whole.json")
    ]
    assert rows[0] == rows[1]
