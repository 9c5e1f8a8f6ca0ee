"""Durations as people write them: ``250ms``, ``1.5s``, ``10m``, ``2h``, ``3d``.

One number and one unit. A bare number is refused: whether 30 means seconds or milliseconds is
exactly what a reader at 3 a.m. should not have to know.
"""

import datetime as dt
import re
from decimal import Decimal

DURATION_MAX = dt.timedelta(days=365)
"""Nothing here is meant to wait for longer; a larger number is a slip of the pen."""

EXAMPLES = "250ms, 1.5s, 10m, 2h or 3d"

_UNITS = {
    "ms": dt.timedelta(milliseconds=1),
    "s": dt.timedelta(seconds=1),
    "m": dt.timedelta(minutes=1),
    "h": dt.timedelta(hours=1),
    "d": dt.timedelta(days=1),
}
_TICK = dt.timedelta(microseconds=1)
# At most 15 digits before the point: enough for a year of microseconds, and cheap to compute with.
SYNTAX = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")


def parse_duration(text: str) -> dt.timedelta | None:
    """The duration that ``text`` says, or None if it says none; it may exceed every limit.

    Rounded to the microsecond. ``timedelta.max`` stands for whatever is longer than a
    ``timedelta`` can be.
    """
    match = SYNTAX.fullmatch(text)
    if match is None:
        return None
    number, unit = match.groups()
    ticks = round(Decimal(number) * (_UNITS[unit] // _TICK))
    try:
        return dt.timedelta(microseconds=ticks)
    except OverflowError:
        return dt.timedelta.max


def format_duration(duration: dt.timedelta) -> str:
    """A text that ``parse_duration`` reads as ``duration``, which is not negative."""
    assert duration >= dt.timedelta(0), duration
    for name, unit in reversed(_UNITS.items()):
        if duration >= unit and duration % unit == dt.timedelta(0):
            return f"{duration // unit}{name}"
    if not duration:
        return "0s"
    milliseconds = Decimal(duration // _TICK) / 1000
    return f"{milliseconds.normalize():f}ms"
