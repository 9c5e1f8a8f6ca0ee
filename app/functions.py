"""What a Python function of the sagas directory imports: what it is told, and what it may say.

A call of a step may be a Python function instead of an HTTP request::

    # sagas/book_trip.yaml
    action:
      python: {function: bookings.book_flight, arguments: {city: "${{ input.city }}"}}

    # sagas/bookings.py
    from app.functions import Refused, Retry


    async def book_flight(city: str, key: str) -> dict[str, str]:
        answer = await airline.book(city, idempotency_key=key)
        if answer.sold_out:
            raise Refused(f"no seat to {city}")
        if answer.is_overloaded:
            raise Retry("the airline is busy", after_seconds=30)
        return {"id": answer.booking}

**What is called.** ``module.function`` names a public function (``def`` or ``async def``) that is
defined in ``module.py`` in the sagas directory; not an imported one, and none whose name starts
with ``_``. Modules are loaded once, when the service starts; those whose name starts with ``_`` are
not, and may hold what the others share: ``from ._money import cents``. Modules import each other
in this relative way alone, so that no name clashes with an installed package. An ``__init__.py`` is
not run.

**What it is given.** The rendered arguments, by name; nothing looks at annotations. Beside them, if
it has parameters of these names (``**rest`` is none): ``key``, the idempotency key, a string, the
same at every attempt; and ``call``, a ``Call``. A call that does not fit the parameters is refused,
and not made. A compensation, and an action that the definition says is ``idempotent``, is called
again with the same arguments and key while what became of it is not known, even while the earlier
call still runs: pass the key on to what you call, or store it with what you do, in the same
transaction. A function may do without the key if to do it twice is to do it once.

**What it says.** It *returns*: it is done; what it returns is the output, and must be JSON: dicts
with strings as keys, lists, strings, numbers of at most 64 bits, booleans, None, at most 1 MiB and
100 levels deep. Anything else that it returns makes the outcome unknown. It raises ``Refused`` or
``Retry``: nothing was done. It raises ``Unknown``, or *anything else*: it may have been done. (An
exception group is anything else, whatever is in it: one task of several speaks for itself alone.)

**How long it may take.** The call's ``timeout``. After that nobody listens, and its effect is
unknown. An ``async def`` is cancelled then, and has to end; what it returns or raises from there
on is not listened to. A ``def`` runs in a thread, which nothing can stop: it goes on, and may still
have its effect long after its saga has been undone. So pass a timeout on to whatever it waits for
(``call.timeout_seconds``), and set the call's ``late_window`` to what it may take beyond that. A
thread that hangs is lost to its function, which has only so many.

**The event loop is the service's.** An ``async def`` that blocks (``time.sleep``, ``requests``, a
long computation) stops everything, and after a few seconds this replica loses its sagas to another.
What blocks belongs in a ``def``.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The attempt that a function is called for; given to a parameter named ``call``.

    Attributes:
        saga_id: a UUID.
        step: the step in that saga.
        call: ``action``, ``compensation`` or ``verify``.
        attempt: counts the attempts of this call, from 1.
        key: the idempotency key, a UUID; the same at every attempt.
        timeout_seconds: of the whole attempt, from when the function is called.
        callback_url: where the outcome is to be posted; None unless the step waits for a callback.
    """

    saga_id: str
    step: str
    call: str
    attempt: int
    key: str
    timeout_seconds: float
    callback_url: str | None = None


class Refused(Exception):
    """Nothing was done, and no retry helps."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class Retry(Exception):
    """Nothing was done, and a later attempt may do it.

    Args:
        message: what stood in the way.
        after_seconds: not before then; None leaves it to the step's retry policy. What is negative
            or not a number counts as None.
    """

    after_seconds: float | None = None

    def __init__(self, message: str, after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


class Unknown(Exception):
    """It may have been done: like any other exception, but meant, and not logged as a fault."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
