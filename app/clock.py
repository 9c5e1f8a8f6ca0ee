"""The one clock: the database's time, estimated between two readings of it.

The database's clock is authoritative: replicas on machines whose clocks differ agree through it.
Each heartbeat reads it, and in between time goes on by ``CLOCK_BOOTTIME``, which also counts the
time a process or machine was suspended. So a process that was frozen beyond its lease sees that
its intents have expired, and sends nothing.
"""

import datetime as dt
import time


def elapsed_seconds() -> float:
    """Seconds since some fixed moment, suspended time included (Linux; elsewhere monotonic)."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Clock:
    """Database time as this process knows it.

    Until the first reading the process's own UTC clock stands in.
    """

    def __init__(self) -> None:
        # One value, for threads that read while another is learned.
        self._reading = (dt.datetime.now(dt.UTC), elapsed_seconds())

    def now(self) -> dt.datetime:
        """The database's time now, in UTC, to within the round trip of the last reading."""
        database_time, read_at = self._reading
        return database_time + dt.timedelta(seconds=elapsed_seconds() - read_at)

    def learn(self, database_time: dt.datetime, *, asked_at_seconds: float) -> None:
        """Take in one reading of the database's clock.

        Args:
            database_time: what the database said.
            asked_at_seconds: ``elapsed_seconds()`` right before it was asked. The reading is
                dated there, the earliest it can be, so this clock runs ahead of the database's by
                at most the round trip: leases are trusted too briefly rather than too long.
        """
        self._reading = (database_time.astimezone(dt.UTC), asked_at_seconds)
