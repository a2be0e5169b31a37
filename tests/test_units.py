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
from tests.parameters import naming


def test_duration_is_parsed_into_seconds():
    for text, seconds in {
        "0.2s": 0.2,
        "200 ms": 0.2,
        "5us": 5e-6,
        "3ns": 3e-9,
        "1m": 60,
        "10": 10,
        "1e-3": 1e-3,
        "0": 0,
    }.items():
        assert parse_seconds(text) == pytest.approx(seconds, rel=1e-15), text


def test_invalid_duration_is_refused():
    for text in ("", "s", "-1s", "1h", "1 2", "inf", "nan", "1..2s", "1e999"):
        with naming(text), pytest.raises(UsageError, match="is not a duration"):
            parse_seconds(text)


def test_fraction_is_parsed():
    for text, fraction in (("1%", 0.01), ("0.5 %", 0.005), ("0.01", 0.01)):
        assert parse_fraction(text) == pytest.approx(fraction, rel=1e-15), text


def test_invalid_fraction_is_refused():
    for text in ("", "%", "0", "1", "100%", "-1%", "nan", "one"):
        with naming(text), pytest.raises(UsageError, match="is not a fraction"):
            parse_fraction(text)


def test_seconds_are_printed_in_a_readable_unit():
    printed = {
        12.3456: "12.35 s",
        2.9412e-3: "2.941 ms",
        64e-6: "64.00 us",
        5e-10: "0.500 ns",
        0: "0.000 ns",
        1234.5: "1234 s",
    }
    assert {seconds: format_seconds(seconds) for seconds in printed} == printed


def test_bytes_are_printed_in_binary_units():
    printed = {0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 2**32: "4.0 GiB", 2**41: "2.0 TiB"}
    assert {count: format_bytes(count) for count in printed} == printed


def test_sizes_are_printed_as_they_are_written():
    assert format_size((1024, 7)) == "1024x7"
    assert format_size(()) == "scalar"
