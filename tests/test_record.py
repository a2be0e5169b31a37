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


def test_record_is_written_with_derived_figures_and_under_public_names():
    assert list(Half(3.0).to_json().items()) == [("whole", 3.0), ("half", 1.5), ("unit", "s")]
    two, four = {"whole": 2, "half": 1.0, "unit": "s"}, {"whole": 4, "half": 2.0, "unit": "m"}
    halves = Halves({"two": Half(2)}, in_=(Half(2), Half(4, "m")))
    assert halves.to_json() == {"by_name": {"two": two}, "in": [two, four]}
    assert math.isnan(Half(math.nan).to_json()["whole"])  # for the encoder to replace
    with pytest.raises(AttributeError):
        Half(1.0).whole = 2.0  # type: ignore[misc]
