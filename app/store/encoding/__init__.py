"""Entries as JSON and back: the stored form of the journal.

Every word in it is part of the format (``entries.FORMAT``): a later release reads what an earlier
one wrote. Fields that have their resting value (None, false, 0, empty) are left out. An attempt's
answer is stored once, as the call's output; what remains of the observation is its status.
"""

import datetime as dt
from uuid import UUID

import orjson

from app.core.entries import Entry, Reception
from app.core.identity import EntryId
from app.store.encoding.calls import dump_call, load_call
from app.store.encoding.conclusions import (
    dump_conclusion,
    dump_failure,
    load_conclusion,
    load_failure,
)
from app.store.encoding.facts import FACT_NAMES, dump_fact, load_fact
from app.store.encoding.fields import slim

__all__ = ["FACT_NAMES", "dump_entry", "dump_failure", "load_entry", "load_failure"]


def dump_entry(entry: Entry) -> str:
    """The JSON text of an entry, without its seq, id and time, which have columns of their own."""
    document = {
        "fact": dump_fact(entry.fact),
        "now": dump_conclusion(entry.now),
        "calls": [dump_call(call) for call in entry.calls],
        "reception": entry.reception,
    }
    return orjson.dumps(slim(document)).decode()


def load_entry(*, seq: int, id: UUID, at: dt.datetime, type: str, data: str) -> Entry:  # noqa: A002 - the columns' names
    """The entry that ``dump_entry`` wrote, from its row's columns."""
    document = orjson.loads(data)
    reception = document.get("reception")
    return Entry(
        seq=seq,
        id=EntryId(id),
        at=at,
        fact=load_fact(type, document.get("fact", {}), document),
        now=load_conclusion(document["now"]),
        calls=tuple(load_call(call) for call in document.get("calls", [])),
        reception=None if reception is None else Reception(reception),
    )
