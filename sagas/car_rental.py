"""The functions of ``rent_car_in_python``: they call the example world, and say what came of it.

They are synchronous, so the service runs each in a thread of its own. What a tool answers is told
apart as the engine itself would for an HTTP call: refused, busy, or nobody knows.
"""

import json
import urllib.error
import urllib.request
from typing import Any

from app.functions import Call, Refused, Retry, Unknown

PRICES = {"Lisbon": 40, "Oslo": 95, "Rome": 60}


def find_price(city: str, days: int) -> dict[str, int]:
    """What a car costs; looks at nothing but its arguments."""
    return {"amount": PRICES.get(city, 80) * days}


def rent(world: str, city: str, call: Call) -> dict[str, Any]:
    """Rent a car; the tool keeps our key, and rents one car for it."""
    return _ask(call, "POST", f"{world}/cars", {"city": city})


def give_back(world: str, car: str, call: Call) -> None:
    """Give a car back; one that is gone already is given back."""
    _ask(call, "DELETE", f"{world}/cars/{car}", is_gone_done=True)


def charge(world: str, card: str, amount: int, call: Call) -> dict[str, Any]:
    """Charge a card."""
    return _ask(call, "POST", f"{world}/charges", {"card": card, "amount": amount})


def refund(world: str, charge_key: str, call: Call) -> dict[str, Any]:
    """Refund what was charged under a key of ours."""
    return _ask(call, "POST", f"{world}/refunds", {"charge_key": charge_key})


def _ask(
    call: Call,
    method: str,
    url: str,
    body: dict[str, Any] | None = None,
    *,
    is_gone_done: bool = False,
) -> Any:  # noqa: ANN401 - whatever the tool says
    """One request; its headers say who asks, as the service's own do."""
    request = urllib.request.Request(  # noqa: S310 - the definition gives the address
        url,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Content-Type": "application/json",
            "Idempotency-Key": call.key,
            "Amends-Saga": call.saga_id,
            "Amends-Step": call.step,
            "Amends-Call": call.call,
            "Amends-Attempt": str(call.attempt),
        },
    )
    try:
        # Less than the call's own limit: a thread cannot be stopped from outside.
        with urllib.request.urlopen(request, timeout=call.timeout_seconds / 2) as answer:  # noqa: S310
            text = answer.read()
            return json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        if is_gone_done and error.code in {404, 410}:
            return None
        if error.code == 429:
            raise Retry(f"the tool is busy ({error.code})", after_seconds=1) from error
        if 400 <= error.code < 500:
            raise Refused(f"the tool answered {error.code}: {error.read(200)!r}") from error
        raise Unknown(f"the tool answered {error.code}") from error
    except (OSError, ValueError) as error:
        raise Unknown(f"no answer that can be read: {error}") from error
