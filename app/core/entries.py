"""Entries: what the core concluded from an event; what the journal stores.

An entry holds the event *and what followed from it*, so that folding a journal reads no
definition, policy or clock: a new release never rewrites the past of a running saga.
"""

import datetime as dt
from dataclasses import dataclass

from app.core.events import Fact
from app.core.identity import EntryId
from app.core.saga import CallState, Conclusion

FORMAT = 1
"""Grows when an entry can no longer be read by the release before; a replica leaves entries of a
newer format to newer replicas."""


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
    """

    seq: int
    id: EntryId
    at: dt.datetime
    fact: Fact
    now: Conclusion
    calls: tuple[CallState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """The event changes nothing, and why: it is late, a duplicate, or asks for what is so."""

    reason: str
