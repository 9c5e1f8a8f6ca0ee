"""Durations: what is one, what is none, and that writing and reading agree."""

import datetime as dt

import pytest
from hypothesis import given, strategies as st

from app.core.language.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250ms", dt.timedelta(milliseconds=250)),
        ("5s", dt.timedelta(seconds=5)),
        ("1.5s", dt.timedelta(seconds=1.5)),
        ("10m", dt.timedelta(minutes=10)),
        ("2h", dt.timedelta(hours=2)),
        ("0.5h", dt.timedelta(minutes=30)),
        ("3d", dt.timedelta(days=3)),
        ("0s", dt.timedelta(0)),
        ("007s", dt.timedelta(seconds=7)),
        ("0.0000004s", dt.timedelta(0)),
        ("999999999999999d", dt.timedelta.max),
    ],
)
def test_a_number_and_a_unit_are_a_duration(text: str, expected: dt.timedelta) -> None:
    """A number and a unit are read, rounded to the microsecond and never beyond the largest."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "s", "5 s", " 5s", "5s\n", "-5s", "+5s", "1e3s", "5S", "5sec", "1h30m", ".5s"),
        *("5.s", "\N{ARABIC-INDIC DIGIT FIVE}s", "1_000s", "infs", "nans", "P1D", "1" * 16 + "s"),
    ],
)
def test_anything_else_is_none(text: str) -> None:
    """Signs, spaces, other units, other digits and several parts are no duration."""
    assert parse_duration(text) is None


@given(st.text())
def test_every_text_is_decided(text: str) -> None:
    """No text makes the reader raise or return less than nothing."""
    read = parse_duration(text)

    assert read is None or read >= dt.timedelta(0)


@given(st.timedeltas(min_value=dt.timedelta(0), max_value=dt.timedelta(days=36500)))
def test_what_is_written_reads_the_same(duration: dt.timedelta) -> None:
    """Every duration is written as a text that reads as that duration."""
    assert parse_duration(format_duration(duration)) == duration


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.sampled_from(["ms", "s", "m", "h", "d"]))
def test_more_of_a_unit_is_not_less(one: int, other: int, unit: str) -> None:
    """Durations of one unit are ordered as their numbers are."""
    less, more = sorted((one, other))
    shorter, longer = parse_duration(f"{less}{unit}"), parse_duration(f"{more}{unit}")

    assert shorter is not None
    assert longer is not None
    assert shorter <= longer


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (dt.timedelta(0), "0s"),
        (dt.timedelta(minutes=5), "5m"),
        (dt.timedelta(days=365), "365d"),
        (dt.timedelta(hours=36), "36h"),
        (dt.timedelta(seconds=1.5), "1500ms"),
        (dt.timedelta(microseconds=1), "0.001ms"),
        (dt.timedelta(microseconds=1_000_500), "1000.5ms"),
    ],
)
def test_the_largest_unit_that_fits_is_written(duration: dt.timedelta, expected: str) -> None:
    """A duration is written in whole units where it has any."""
    assert format_duration(duration) == expected
