"""When to try again: the bounds of the pauses, and what ``Retry-After`` asks for."""

import datetime as dt
import email.utils

import pytest
from hypothesis import given, strategies as st

from app.core.retry import (
    ACTION_RETRY,
    COMPENSATION_RETRY,
    RETRY_AFTER_MAX,
    backoff_delay,
    parse_retry_after,
)
from tests.core.builders import T0, a_policy, seconds

SEEDS = st.integers(min_value=0, max_value=2**63 - 1)


def test_the_built_in_policies_are_those_of_the_design() -> None:
    """The defaults are as the design page gives them."""
    built_in = (ACTION_RETRY, COMPENSATION_RETRY)

    forward = a_policy(max_attempts=5, initial_delay=0.5, backoff=2, max_delay=30, max_elapsed=600)
    backward = a_policy(
        max_attempts=20, initial_delay=1, backoff=2, max_delay=300, max_elapsed=None
    )

    assert built_in == (forward, backward)


@given(failures=st.integers(min_value=1, max_value=5000), seed=SEEDS)
def test_a_pause_is_between_zero_and_its_ceiling(failures: int, seed: int) -> None:
    """Full jitter: between nothing and a ceiling that grows by ``backoff`` with each failure."""
    policy = a_policy(initial_delay=1, backoff=2, max_delay=30)

    delay = backoff_delay(policy, failures=failures, seed=seed)

    ceiling = min(30.0, 2.0 ** min(failures - 1, 100))
    assert seconds(0) <= delay <= seconds(ceiling)


@pytest.mark.parametrize(("failures", "ceiling"), [(1, 1.0), (2, 3.0), (3, 9.0), (4, 10.0)])
def test_the_jitter_is_full(failures: int, ceiling: float) -> None:
    """Over many seeds the pauses reach near zero and near their ceiling, and average half of it."""
    policy = a_policy(initial_delay=1, backoff=3, max_delay=10)

    delays = [
        backoff_delay(policy, failures=failures, seed=seed).total_seconds() for seed in range(2000)
    ]

    assert min(delays) < ceiling * 0.01
    assert ceiling * 0.99 < max(delays) <= ceiling
    assert ceiling * 0.47 < sum(delays) / len(delays) < ceiling * 0.53


@given(failures=st.integers(min_value=1, max_value=40), seed=SEEDS)
def test_the_same_seed_gives_the_same_pause(failures: int, seed: int) -> None:
    """Concluding twice concludes the same."""
    policy = a_policy()

    first = backoff_delay(policy, failures=failures, seed=seed)

    assert backoff_delay(policy, failures=failures, seed=seed) == first


@pytest.mark.parametrize("backoff", [1.0, 2.0, 1e300])
@pytest.mark.parametrize("failures", [1, 1000, 1_000_000])
def test_an_enormous_power_is_the_longest_pause(backoff: float, failures: int) -> None:
    """No number of failures and no factor makes a pause longer than max_delay, or fails."""
    policy = a_policy(initial_delay=1, backoff=backoff, max_delay=30)

    assert backoff_delay(policy, failures=failures, seed=1) <= seconds(30)


def test_no_delay_is_no_delay() -> None:
    """A policy without a pause retries at once."""
    policy = a_policy(initial_delay=0, backoff=2, max_delay=0)

    assert backoff_delay(policy, failures=7, seed=1) == seconds(0)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("", None),
        ("   ", None),
        ("0", seconds(0)),
        ("00012", seconds(12)),
        ("\t12 ", seconds(12)),
        ("+12", None),
        ("-12", None),
        ("12s", None),
        ("12, 13", None),
        ("0x10", None),
        ("1e3", None),
        ("1.5", None),
        ("٣", None),
        ("²", None),
        ("999999999", RETRY_AFTER_MAX),
        ("9" * 5000, RETRY_AFTER_MAX),
        ("Thu, 01 Jan 2026 12:00:10 GMT", seconds(10)),
        ("Thu, 01 Jan 2026 13:00:10 +0100", seconds(10)),
        ("Thu, 01 Jan 2026 12:00:10 -0000", seconds(10)),
        ("Sun, 06 Nov 1994 08:49:37 GMT", seconds(0)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", RETRY_AFTER_MAX),
        ("Thu, 01 Jan 2026 25:00:00 GMT", None),
        ("tomorrow", None),
        ("<html>", None),
    ],
)
def test_what_retry_after_asks_for(header: str | None, expected: dt.timedelta | None) -> None:
    """Seconds and dates are understood, capped at an hour, and nonsense is ignored."""
    assert parse_retry_after(header, now=T0) == expected


@given(header=st.text(max_size=120))
def test_no_header_breaks_the_parser(header: str) -> None:
    """Whatever a tool sends, the wait is none or between nothing and an hour."""
    wait = parse_retry_after(header, now=T0)

    assert wait is None or seconds(0) <= wait <= RETRY_AFTER_MAX


_WORDS = st.sampled_from(
    ["Thu", ",", "01", "Jan", "2026", "99999", "12:00:10", "GMT", "+9999", "-0000", " ", "EST", ":"]
)


@given(words=st.lists(_WORDS, max_size=12))
def test_nearly_a_date_does_not_break_the_parser(words: list[str]) -> None:
    """A header made of the pieces of dates gives a wait within bounds, or none."""
    wait = parse_retry_after(" ".join(words), now=T0)

    assert wait is None or seconds(0) <= wait <= RETRY_AFTER_MAX


@given(moment=st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(9999, 12, 30)))  # noqa: DTZ001 - zone follows
def test_every_http_date_is_understood(moment: dt.datetime) -> None:
    """A date in the form of RFC 9110 asks for the time until then, from none to an hour."""
    moment = moment.replace(microsecond=0, tzinfo=dt.UTC)

    wait = parse_retry_after(email.utils.format_datetime(moment, usegmt=True), now=T0)

    assert wait == max(seconds(0), min(moment - T0, RETRY_AFTER_MAX))
