import math
from pathlib import Path
from typing import Any

import pytest

from losscli.config.loader import load_config, shipped_configs
from losscli.config.positions import parse
from losscli.errors import EXIT_USAGE, ConfigError, UsageError

BAD_CONFIGS = sorted((Path(__file__).parent / "data" / "bad_configs").glob("*.yaml"))


@pytest.mark.parametrize("path", BAD_CONFIGS, ids=lambda path: path.stem)
def test_bad_config_gets_the_message_of_its_first_line(path):
    expected = path.read_text().splitlines()[0].removeprefix("# ")
    with pytest.raises(ConfigError) as caught:
        load_config(str(path), {})
    separator = "" if expected[0].isdigit() else " "
    assert str(caught.value) == f"{path}:{separator}{expected.strip()}"
    assert caught.value.exit_code == EXIT_USAGE


NOT_YAML = {
    b"sizes: \xff\n": "not UTF-8 text: invalid start byte at byte 7.",
    b"a: 1\nb: \x07\n": "2:4: cannot parse YAML: character #x0007 is not allowed.",
    b"[" * 500: "cannot parse YAML: it is nested too deeply.",
}


def test_file_that_is_not_yaml_is_one_message(tmp_path):
    path = tmp_path / "bad.yaml"
    for content, message in NOT_YAML.items():
        path.write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            load_config(str(path), {})
        assert str(caught.value).removeprefix(f"{path}:").strip() == message


def test_configs_that_extend_each_other_are_listed(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(ConfigError, match=r"in a circle: a\.yaml -> b\.yaml -> a\.yaml"):
        load_config(str(tmp_path / "a.yaml"), {})


def test_a_missing_config_lists_the_shipped_ones():
    with pytest.raises(UsageError, match=r"'nope' does not exist.*: ") as caught:
        load_config("nope", {})
    shipped = (name.removesuffix(".yaml") for name in shipped_configs())
    assert all(f" {name}" in str(caught.value) for name in shipped)


def test_directory_and_empty_name_are_refused(tmp_path):
    for name, message in ((str(tmp_path), "is a directory"), ("", "name of the config is empty")):
        with pytest.raises(UsageError, match=message):
            load_config(name, {})


def parsed(text: str) -> Any:
    return parse(text, "f.yaml")


def value(text):
    return parsed(f"key: {text}").value["key"].value


SCALARS = {
    "1e-3": 0.001,
    "1E+2": 100.0,
    ".5": 0.5,
    "1.": 1.0,
    "-.inf": -math.inf,
    "010": 10,
    "0o17": 15,
    "0x10": 16,
    "+3": 3,
    "true": True,
    "True": True,
    "~": None,
    "": None,
    "null": None,
    **{text: text for text in ("on", "yes", "NO", "12:30", "1_000", "0b11", "2020-01-01")},
    "'1'": "1",
    '"true"': "true",
    "9" * 5000: "9" * 5000,
}


def test_scalar_has_the_type_of_yaml_1_2():
    for text, expected in SCALARS.items():
        found = value(text)
        assert found == expected, text
        assert type(found) is type(expected), text
    assert math.isnan(value(".nan"))


def test_every_value_has_its_position_and_text():
    item = parsed("# a comment\na:\n  - 1\n  - 0x10\n").value["a"].value[1]
    assert (item.file, item.line, item.column, item.text) == ("f.yaml", 4, 5, "0x10")


def test_an_alias_has_the_value_of_its_anchor():
    root = parsed("a: &x [1, 2]\nb: *x\n")
    assert [item.value for item in root.value["b"].value] == [1, 2]


def test_aliases_of_aliases_do_not_explode():
    lines = ["a0: &a0 [1, 1]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    assert len(parsed("\n".join(lines)).value) == 60
