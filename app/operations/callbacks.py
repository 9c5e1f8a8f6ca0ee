"""What tools report by webhook. The token alone says which call it is about, and that they may."""

import asyncio
import hashlib
from dataclasses import dataclass
from typing import NewType

import orjson

from app.core.callbacks import CallbackAddress, is_genuine, read_token
from app.core.entries import Reception
from app.core.errors import CallbackContradicts, NotFound, StoreUnavailable
from app.core.events import CallbackReceived
from app.core.identity import derive_key_seed
from app.core.json_value import JsonValue
from app.core.saga import CallbackOutcome, Effect
from app.operations.context import Context

ERROR_CHARACTERS_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a tool says of a call.

    Attributes:
        output: of a success.
        error: of a failure; any JSON, kept as text.
        effect: of a failure; None if the tool does not say.
        progress: of work that goes on.
    """

    outcome: CallbackOutcome
    output: JsonValue = None
    error: JsonValue = None
    effect: Effect | None = None
    progress: JsonValue = None


AuthorizedAddress = NewType("AuthorizedAddress", CallbackAddress)
"""A call that whoever reports has the token of; made by ``authorize_callback`` alone."""


def authorize_callback(context: Context, token: str) -> AuthorizedAddress:
    """The call that a token names, if we have made it.

    Raises:
        NotFound: the token is forged, or another tenant's.
    """
    address = read_token(token)
    if address is None or not _is_ours(context, token, address):
        raise NotFound(kind="callback", name=token[:20])
    return AuthorizedAddress(address)


async def receive_callback(
    context: Context, address: AuthorizedAddress, report: Report
) -> Reception:
    """Record what a tool reports; once it returns, that is stored.

    Raises:
        NotFound: the saga is not known here.
        CallbackContradicts: something else was reported before; this is kept as evidence.
        StoreUnavailable: the database does not answer; the same may be sent again.
    """
    fact = _fact(address, report)
    try:
        async with asyncio.timeout(context.answer_seconds_max):
            reception = await context.journal.receive(address.saga, fact)
    except TimeoutError as error:
        message = "the database does not answer; whether it was stored is not known; send it again"
        raise StoreUnavailable(message) from error
    if reception is Reception.CONTRADICTION:
        raise CallbackContradicts(saga=address.saga, step=address.step)
    return reception


def _is_ours(context: Context, token: str, address: CallbackAddress) -> bool:
    tenant = context.tenant
    if address.tenant != tenant.id:
        return False
    key_seed = derive_key_seed(tenant_secret=tenant.secret, saga=address.saga)
    return is_genuine(token, address, key_seed=key_seed)


def _fact(address: CallbackAddress, report: Report) -> CallbackReceived:
    said = orjson.dumps(
        [report.outcome, report.output, report.error, report.effect, report.progress],
        option=orjson.OPT_SORT_KEYS,
    )
    return CallbackReceived(
        step=address.step,
        direction=address.direction,
        generation=address.generation,
        outcome=report.outcome,
        output=report.output,
        error=_text(report.error),
        effect=report.effect,
        progress=report.progress,
        body_bytes=len(said),
        digest=hashlib.blake2b(said, digest_size=16).hexdigest(),
    )


def _text(error: JsonValue) -> str | None:
    if error is None:
        return None
    text = error if isinstance(error, str) else orjson.dumps(error).decode()
    return text[:ERROR_CHARACTERS_MAX]
