"""A small world for sagas to act on: travel, a bank, a shop and mail, behind one HTTP port.

It is a *tool server* with a durable ledger of its own, so it can be the judge of a saga engine
that is killed, cut off or lied to: what it received and what it did never passes through that
engine. Run it with ``python -m examples.world``, or in a test::

    async with serving(ledger=path) as world:
        ...  # world.url

How a request travels, and which module sees to it:

==============  ====================================================================
``arrivals``    reads it off the wire
``switches``    finds the fault that was ordered for it, if any (``faults``)
``storage``     records it, before anything else happens (``tables``, ``records``)
``tool``        leads it through holds, delays and faults (``holds``, ``wire``)
``keys``        sees whether it is new, and whether it is answered now or reported on later
``rules``       decides what it does to the world, in the transaction that does it (``routes``,
                ``catalogue``)
``caller``      reports later, to who wants to be called back (``plans``, ``jobs``)
``control``     is the way in for the person at the switches: ``/world/...``
``judge``       says afterwards what was wrong (``summary`` counts what was there)
==============  ====================================================================
"""

from examples.world.judge import Expectation, Violation, judge
from examples.world.records import Callback, Effect, Ledger, Received
from examples.world.server import World, serving
from examples.world.storage import read_ledger

__all__ = [
    "Callback",
    "Effect",
    "Expectation",
    "Ledger",
    "Received",
    "Violation",
    "World",
    "judge",
    "read_ledger",
    "serving",
]
