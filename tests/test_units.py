"""Reading and writing of units."""

import pytest

from losscli.errors import UsageError
from losscli.units import (
    format_bytes,
    format_seconds,
    format_size,
    parse_fraction,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0.2s", 0.2),
        ("200 ms", 0.2),
        ("5us", 5e-6),
        ("3ns", 3e-9),
        ("1m", 60),
        ("10", 10),
        ("1e-3", 1e-3),
        ("0", 0),
    ],
)
def test_duration_is_parsed_into_seconds(text, seconds):
    assert parse_seconds(text) == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize("text", ["", "s", "-1s", "1h", "1 2", "inf", "nan", "1..2s", "1e999"])
def test_invalid_duration_is_refused(text):
    with pytest.raises(UsageError, match="is not a duration"):
        parse_seconds(text)


@pytest.mark.parametrize(("text", "fraction"), [("1%", 0.01), ("0.5 %", 0.005), ("0.01", 0.01)])
def test_fraction_is_parsed(text, fraction):
    assert parse_fraction(text) == pytest.approx(fraction, rel=1e-15)


@pytest.mark.parametrize("text", ["", "%", "0", "1", "100%", "-1%", "nan", "one"])
def test_invalid_fraction_is_refused(text):
    with pytest.raises(UsageError, match="is not a fraction"):
        parse_fraction(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (12.3456, "12.35 s"),
        (2.9412e-3, "2.941 ms"),
        (64e-6, "64.00 us"),
        (5e-10, "0.500 ns"),
        (0, "0.000 ns"),
        (1234.5, "1234 s"),
    ],
)
def test_seconds_are_printed_in_a_readable_unit(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**32, "4.0 GiB"), (2**41, "2.0 TiB")],
)
def test_bytes_are_printed_in_binary_units(count, text):
    assert format_bytes(count) == text


def test_sizes_are_printed_as_they_are_written():
    assert format_size((1024, 7)) == "1024x7"
    assert format_size(()) == "scalar"
