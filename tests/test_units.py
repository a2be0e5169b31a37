import pytest

from losscli.cli.judge import _memory
from losscli.config.sizes import parse_size
from losscli.errors import UsageError
from losscli.units import (
    format_bytes,
    format_seconds,
    format_size,
    parse_fraction,
    parse_memory,
    parse_seconds,
)
from tests.parameters import naming


def test_duration_is_parsed_into_seconds_or_refused():
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
    for text in ("", "s", "-1s", "1h", "1 2", "inf", "nan", "1..2s", "1e999"):
        with naming(text), pytest.raises(UsageError, match="is not a duration"):
            parse_seconds(text)


def test_fraction_is_parsed_or_refused():
    for text, fraction in (("1%", 0.01), ("0.5 %", 0.005), ("0.01", 0.01)):
        assert parse_fraction(text) == pytest.approx(fraction, rel=1e-15), text
    for text in ("", "%", "0", "1", "100%", "-1%", "nan", "one"):
        with naming(text), pytest.raises(UsageError, match="is not a fraction"):
            parse_fraction(text)


MEMORY = {
    "4GB": 4 * 10**9,
    "4 gb": 4 * 10**9,
    "1.5GB": 1.5 * 10**9,
    "2TB": 2 * 10**12,
    "300 MB": 300 * 10**6,
    "7kB": 7000,
    "7KB": 7000,
    "4GiB": 4 * 2**30,
    "4gib": 4 * 2**30,
    "1TiB": 2**40,
    "4G": 4 * 2**30,
    "512m": 512 * 2**20,
    "8K": 8 * 2**10,
    "12B": 12,
    "12": 12,
}
"""GB counts thousands, GiB and a letter alone 1024, like the K of a size."""


@pytest.mark.parametrize("parse", [parse_memory, _memory], ids=["config", "--memory"])
def test_memory_has_one_meaning_in_a_config_and_on_the_command_line(parse):
    for text, count in MEMORY.items():
        assert parse(text) == count, text
    for text in ("", "G", "-1GB", "4 giga", "4Gi", "4GiBs", "4GB2", "inf", "nanGB", "1..2GB"):
        with naming(text), pytest.raises(UsageError, match="is not a number of bytes"):
            parse(text)


def test_a_file_may_not_have_no_memory_at_all():
    for text in ("0", "0GB", "0.1B"):
        with naming(text), pytest.raises(UsageError, match="is no memory"):
            _memory(text)


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


def test_bytes_are_printed_in_binary_units_and_sizes_as_they_are_written():
    printed = {0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 2**32: "4.0 GiB", 2**41: "2.0 TiB"}
    assert {count: format_bytes(count) for count in printed} == printed
    assert [*map(format_size, ((1024, 7), ()))] == ["1024x7", "scalar"]


PARSED: dict[str, list[tuple[int, ...]]] = {
    "1024x1024": [(1024, 1024)],
    "7": [(7,)],
    "007": [(7,)],
    " 7 ": [(7,)],
    "0": [(0,)],
    "0x3": [(0, 3)],
    "2X3": [(2, 3)],
    "2x3x4x5": [(2, 3, 4, 5)],
    "32K": [(32768,)],
    "32Kx32k": [(32768, 32768)],
    "1M": [(2**20,)],
    "2G": [(2**31,)],
    "1024G": [(2**40,)],
    "pow2[10:30:5]": [(2**10,), (2**15,), (2**20,), (2**25,), (2**30,)],
    "pow2[3:5]": [(8,), (16,), (32,)],
    "pow2[0:0]": [(1,)],
    "1K..8K*2": [(1024,), (2048,), (4096,), (8192,)],
    "1..100*10": [(1,), (10,), (100,)],
    "2..9*2": [(2,), (4,), (8,)],
}
REFUSED = {
    "": "it is empty",
    "-4": "cannot be negative",
    "4x-4": "cannot be negative",
    "4x": "an extent is missing",
    "x4": "an extent is missing",
    "4xx4": "an extent is missing",
    "1.5K": "'1.5K' is not an extent",
    "1e3": "'1e3' is not an extent",
    "4*4": "'4\\*4' is not an extent",
    "4 x 4": "'4 ' is not an extent",
    "32KB": "'32KB' is not an extent",
    "٣": "is not an extent",
    "4Mx4Mx2": "more than 2\\^44 elements",
    "16385G": "more than 2\\^44 elements",
    "0x" + "9" * 30: "more than 2\\^44 elements",
    "x".join(["1"] * 65): "at most 64 dimensions, not 65",
    "pow2[5:3]": "not a range of sizes",
    "pow2[3:45]": "STOP <= 44",
    "pow2[3:5:0]": "STEP at least 1",
    "8..1*2": "STOP no smaller",
    "0..8*2": "START at least 1",
    "1..8*1": "FACTOR at least 2",
    "1..8": "'1..8' is not an extent",
}


def test_size_is_parsed_or_refused():
    for text, shapes in PARSED.items():
        assert list(parse_size(text)) == shapes, text
    for text, reason in REFUSED.items():
        with naming(text), pytest.raises(UsageError, match=reason):
            parse_size(text)
