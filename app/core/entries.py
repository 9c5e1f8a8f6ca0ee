"""Entries: what the core concluded from an event; what the journal stores.

An entry holds the event *and what followed from it*, so that folding a journal reads no
definition, policy or clock: a new release never rewrites the past of a running saga.
"""

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum

from app.core.events import Fact
from app.core.identity import EntryId
from app.core.saga import CallState, Conclusion

FORMAT = 2
"""Grows when an entry can no longer be read by the release before; a replica leaves entries of a
newer format to newer replicas."""


class Reception(StrEnum):
    """What became of a callback."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """The same was reported before."""
    CONTRADICTION = "contradiction"
    """Something else was reported, or answered, before; kept as evidence."""
    LATE = "late"
    """The call was given up, or its outcome is known; kept as evidence where it says something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One transition of one saga.

    Attributes:
        seq: from 1, without gaps.
        id: names the entry; the next transition names it as its predecessor.
        at: database time; never before the entry before.
        fact: what was reported.
        now: the saga as a whole, after it.
        calls: every call that it changed. ``request`` and ``output`` are None where they are as
            in the entry before: they are large, and stored once.
        reception: of a callback; None for any other fact.
    """

    seq: int
    id: EntryId
    at: dt.datetime
    fact: Fact
    now: Conclusion
    calls: tuple[CallState, ...]
    reception: Reception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """The event changes nothing, and why: it is late, a duplicate, or asks for what is so."""

    reason: str
    reception: Reception | None = None
