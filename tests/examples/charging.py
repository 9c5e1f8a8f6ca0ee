"""Charges that are reported later, for tests."""

from tests.examples.client import Client, Reply

CHARGE = {"card": "4242", "amount": 90}
PENDING = {"id": "CH1", "status": "pending"}
SUCCEEDED = {"outcome": "succeeded", "output": {"id": "CH1", "amount": 90}}


async def charge(world: Client, url: str, *, key: str = "k1", card: str = "4242") -> Reply:
    """Charge a card and ask to be called back."""
    return await world.send(
        "POST",
        "/charges",
        CHARGE | {"card": card},
        key=key,
        named="s1 charge action",
        callback_url=url,
    )


async def tell(world: Client, *reports: object, **do: object) -> None:
    """Order what is told of the charges."""
    await world.switch({"match": {"path": "/charges"}, "do": {"callback": list(reports)} | do})
