"""Every file of data/bad_configs gets the error message in its first line."""

from pathlib import Path

import pytest

from losscli.config.check_names import CATCHES
from losscli.config.loader import load_config, shipped_configs
from losscli.errors import EXIT_USAGE, ConfigError, UsageError
from losscli.losses import LINEAR_LOSSES, LOSSES, ROW_FORMS

BAD_CONFIGS = sorted((Path(__file__).parent / "data" / "bad_configs").glob("*.yaml"))


@pytest.mark.parametrize("path", BAD_CONFIGS, ids=lambda path: path.stem)
def test_bad_config_gets_the_message_of_its_first_line(path):
    expected = path.read_text().splitlines()[0].removeprefix("# ")
    rows = [name for name in ROW_FORMS if not name.startswith("weighted_")]
    expected = expected.replace("{losses}", ", ".join(LOSSES))
    expected = expected.replace("{checks}", ", ".join(CATCHES))
    expected = expected.replace("{every_loss}", ", ".join([*LOSSES, *rows, *LINEAR_LOSSES]))
    with pytest.raises(ConfigError) as caught:
        load_config(str(path), {})
    separator = "" if expected[0].isdigit() else " "
    assert str(caught.value) == f"{path}:{separator}{expected.strip()}"
    assert caught.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"sizes: \xff\n", "not UTF-8 text: invalid start byte at byte 7."),
        (b"a: 1\nb: \x07\n", "2:4: cannot parse YAML: character #x0007 is not allowed."),
        (b"[" * 5000, "cannot parse YAML: it is nested too deeply."),
    ],
    ids=["not_utf8", "control_character", "nested_too_deeply"],
)
def test_file_that_is_not_yaml_is_one_message(tmp_path, content, message):
    path = tmp_path / "bad.yaml"
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
