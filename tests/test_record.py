"""A record is written by its own fields."""

import math
from collections.abc import Mapping
from typing import ClassVar

import pytest

from losscli.files.record import Record


class Half(Record, frozen=True):
    whole: float
    unit: str = "s"

    derived: ClassVar[Mapping[str, str]] = {"whole": "half"}

    @property
    def half(self):
        return self.whole / 2


class Halves(Record, frozen=True):
    by_name: Mapping[str, Half]
    in_: tuple[Half, ...] = ()


def test_derived_figure_is_written_after_its_field():
    assert list(Half(3.0).to_json().items()) == [("whole", 3.0), ("half", 1.5), ("unit", "s")]


def test_records_within_records_are_written_under_their_public_names():
    two, four = {"whole": 2, "half": 1.0, "unit": "s"}, {"whole": 4, "half": 2.0, "unit": "m"}
    halves = Halves({"two": Half(2)}, in_=(Half(2), Half(4, "m")))
    assert halves.to_json() == {"by_name": {"two": two}, "in": [two, four]}


def test_to_json_keeps_nan_for_the_encoder_to_replace():
    assert math.isnan(Half(math.nan).to_json()["whole"])


def test_a_record_cannot_be_changed():
    with pytest.raises(AttributeError):
        Half(1.0).whole = 2.0  # type: ignore[misc]
