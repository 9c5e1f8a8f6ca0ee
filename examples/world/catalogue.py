"""What the world deals in: a row for each kind of thing that can be made.

All kinds are made by ``POST /<kind>``, shown by ``GET /<kind>/{id}`` and found by
``GET /<kind>?key=K``. The row says the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

type Undo = Literal["delete", "refund", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of thing."""

    prefix: str
    """How its ids begin."""
    needs: str
    """The field that a request must have, a string that is not empty."""
    unwelcome: Mapping[str, tuple[int, str, str]] = field(default_factory=dict)
    """By how that field begins: with which status, code and message it is refused."""
    undo: Undo = "delete"
    """By ``DELETE /<kind>/{id}``, by ``POST /refunds``, or not at all."""
    has_amount: bool = False
    honours_keys: bool = True
    """False: every request acts, under whatever key. A mode may say otherwise."""


REFUNDS: Final = "refunds"
REFUND_PREFIX: Final = "R"

_NO_CITY: Final = {"Atlantis": (422, "sold_out", "nothing left in Atlantis")}
# Stripe's test card that is always declined: https://docs.stripe.com/testing.
_NO_CARD: Final = {
    "declined": (402, "card_declined", "the card was declined"),
    "4000000000000002": (402, "card_declined", "the card was declined"),
}

KINDS: Final[Mapping[str, Kind]] = {
    # A trip.
    "flights": Kind(prefix="F", needs="city", unwelcome=_NO_CITY),
    "hotels": Kind(prefix="H", needs="city", unwelcome=_NO_CITY),
    "cars": Kind(prefix="C", needs="city", unwelcome=_NO_CITY),
    # A bank; its old counter for fees knows nothing of keys.
    "charges": Kind(prefix="CH", needs="card", unwelcome=_NO_CARD, undo="refund", has_amount=True),
    "fees": Kind(
        prefix="FE", needs="card", unwelcome=_NO_CARD, has_amount=True, honours_keys=False
    ),
    # An order: what is shipped is gone.
    "reservations": Kind(
        prefix="RS",
        needs="sku",
        unwelcome={"unicorn": (422, "out_of_stock", "there are no unicorns left")},
    ),
    "shipments": Kind(
        prefix="SH",
        needs="to",
        unwelcome={"Atlantis": (422, "undeliverable", "nobody ships to Atlantis")},
        undo="never",
    ),
    # A new user.
    "accounts": Kind(
        prefix="A",
        needs="email",
        unwelcome={"taken@": (422, "email_taken", "there is an account with this address")},
    ),
    "avatars": Kind(
        prefix="AV",
        needs="account",
    ),
    "subscriptions": Kind(
        prefix="SU",
        needs="email",
        unwelcome={"blocked@": (422, "blocked", "this address wants no newsletter")},
    ),
    # Mail that is sent is sent, and sent twice if it is asked for twice.
    "mails": Kind(
        prefix="M",
        needs="to",
        unwelcome={"nobody@": (422, "no_such_mailbox", "there is no such mailbox")},
        undo="never",
        honours_keys=False,
    ),
}
