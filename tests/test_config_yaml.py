"""Plain scalars have the types of YAML 1.2, and keep their position."""

import math
from typing import Any

from losscli.config.positions import parse


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
