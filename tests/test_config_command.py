import json
import re
from pathlib import Path

import fastjsonschema
import pytest
import yaml

from losscli.cli import main
from losscli.config.keys import EXTENDS, FIELDS, TABLES
from losscli.config.loader import load_config, shipped_configs
from losscli.errors import EXIT_OK, EXIT_USAGE
from losscli.losses import LOSSES
from tests.conftest import DATA
from tests.documents import ROOT

BAD_CONFIGS = sorted((DATA / "bad_configs").glob("*.yaml"))

SEVERAL = (DATA / "configs" / "several_errors.yaml").read_text()


def test_check_shows_each_error_in_its_line(tmp_path, monkeypatch, capsys, golden):
    monkeypatch.chdir(tmp_path)
    for name, content in {
        "several": SEVERAL,
        "comment": "sizes: 8x8\ndtypes: [float32, float31] #\ttab\nseed: 3\n",
        "long": f"sizes: [{', '.join(['8x8'] * 500)}, 9y9]\n",
        "parent": "sizes: 8x8\ndtypes: float31\n",
        "child": "extends: parent.yaml\nlosses: [mse, hinj]\n",
    }.items():
        Path(f"{name}.yaml").write_text(content)
        assert main.run(["config", "check", f"{name}.yaml"]) == EXIT_USAGE
    told = capsys.readouterr().out
    golden("config_check.txt", re.sub("(Choose from: ).*", r"\1...", told))
    assert main.run(["config", "check", "several.yaml", "--format", "json"]) == EXIT_USAGE
    errors = json.loads(capsys.readouterr().out)
    told_of_first = told.splitlines()[: 3 * len(errors) : 3]
    assert told_of_first == ["{file}:{line}:{column}: {message}".format(**e) for e in errors]


def test_missing_file_does_not_hide_that_others_are_right(capsys):
    assert main.run(["config", "check", "smoke", "default.yaml"]) == EXIT_OK
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ok, ")[0] for line in lines] == ["smoke", "default.yaml"]
    assert main.run(["config", "check", "nope", "default"]) == EXIT_USAGE
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("config 'nope' does not exist.")
    assert lines[1] == "nope: 1 error"
    assert lines[2].startswith("default: ok, ")


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_running_a_bad_config_names_all_errors(command, tmp_path, capsys):
    file = tmp_path / "several.yaml"
    file.write_text(SEVERAL)
    assert main.run([command, "-c", str(file)]) == EXIT_USAGE
    first, *errors = capsys.readouterr().err.splitlines()
    assert first.endswith(": 10 errors, which `losscli config check` shows in their lines:")
    assert len(errors) == 10
    assert all(error.startswith(f"{file}:") for error in errors)


def test_check_refuses_every_malformed_config(capsys):
    assert BAD_CONFIGS
    for path in BAD_CONFIGS:
        assert main.run(["config", "check", str(path)]) == EXIT_USAGE, path
        out = capsys.readouterr().out
        assert "Traceback" not in out, path
        assert out.splitlines()[-1].startswith(f"{path}: ")


def test_output_of_show_is_the_same_config(tmp_path, capsys, accepts):
    for name, path in shipped_configs().items():
        assert main.run(["config", "show", name]) == EXIT_OK
        file = tmp_path / "shown.yaml"
        file.write_text(capsys.readouterr().out)
        assert load_config(str(file), {}) == load_config(name, {}), name
        assert accepts(path.read_text()), name


def test_show_breaks_no_comment_at_the_commas_of_a_path(tmp_path, capsys):
    folder = tmp_path / "one, two, three"
    folder.mkdir()
    config, again = folder / "mine.yaml", tmp_path / "again.yaml"
    for count in range(1, 12):
        config.write_text(f"losses: {[*LOSSES][:count]}\nsizes: 8\n")
        assert main.run(["config", "show", str(config)]) == EXIT_OK
        again.write_text(capsys.readouterr().out)
        assert load_config(str(again), {}) == load_config(str(config), {}), count


def test_show_says_where_each_value_came_from(tmp_path, monkeypatch, capsys):
    (tmp_path / "parent.yaml").write_text("sizes: 8x8\ntiming: {min_time: 1ms, cache: warm}\n")
    child = tmp_path / "child.yaml"
    child.write_text("extends: parent.yaml\ntiming: {min_time: 2ms}\nlosses: mse\n")
    options = ["--dtype", "float16", "--format", "json"]
    assert main.run(["config", "show", str(child), *options]) == EXIT_OK
    shown = json.loads(capsys.readouterr().out)
    assert shown["sizes"] == {"value": ["8x8"], "origin": f"{tmp_path / 'parent.yaml'}:1"}
    assert shown["losses"] == {"value": ["mse"], "origin": f"{child}:3"}
    assert shown["dtypes"] == {"value": ["float16"], "origin": "command line"}
    assert shown["reductions"] == {"value": ["mean"], "origin": "default"}
    assert shown["timing"]["min_time"] == {"value": 0.002, "origin": f"{child}:2"}
    assert shown["timing"]["cache"]["origin"] == f"{tmp_path / 'parent.yaml'}:2"
    assert shown["timing"]["confidence"]["origin"] == "default"
    monkeypatch.setenv("LOSSCLI_CONFIG_SHOW_DTYPE", "float16")
    monkeypatch.setenv("LOSSCLI_DEVICE", "cpu")
    assert main.run(["config", "show", "default", "--format", "json"]) == EXIT_OK
    shown = json.loads(capsys.readouterr().out)
    assert shown["dtypes"] == {"value": ["float16"], "origin": "LOSSCLI_CONFIG_SHOW_DTYPE"}
    assert shown["device"] == {"value": "cpu", "origin": "LOSSCLI_DEVICE"}


def test_commands_of_the_group_have_the_options_of_all_commands(capsys):
    for part in ("check", "show", "schema"):
        assert main.run(["config", part, "--help"]) == EXIT_OK
        out = capsys.readouterr().out
        for text in ("--debug", "-q, --quiet", f"LOSSCLI_CONFIG_{part.upper()}_"):
            assert text in out, part


def test_schema_is_the_one_that_configs_name(capsys):
    assert main.run(["config", "schema"]) == EXIT_OK
    printed = capsys.readouterr().out
    # Mend it with `losscli config schema > configs/schema.json`.
    assert printed == (ROOT / "configs" / "schema.json").read_text()
    assert {*json.loads(printed)["properties"]} == {EXTENDS, TABLES, *FIELDS}


@pytest.fixture(scope="module")
def accepts():
    check = fastjsonschema.compile(json.loads((ROOT / "configs" / "schema.json").read_text()))

    def accept(text: str) -> bool:
        try:
            check(yaml.safe_load(text))
        except fastjsonschema.JsonSchemaException:
            return False
        return True

    return accept


REFUSED = (DATA / "configs" / "refused_lines.txt").read_text()


def test_schema_refuses_what_losscli_refuses(accepts, tmp_path):
    file = tmp_path / "config.yaml"
    for text in REFUSED.splitlines():
        file.write_text(text)
        assert not accepts(text), text
        assert main.run(["config", "check", str(file)]) == EXIT_USAGE, text
