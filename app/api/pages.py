"""Cursors: where a page ended, as an opaque text.

A cursor holds the sort key of the last item, not a number of items: whatever is added or finished
meanwhile, a page goes on where the one before ended. The first byte says of which list it is.
"""

import base64
import binascii
import datetime as dt
import struct
from uuid import UUID

from app.core.errors import Fault, InvalidRequest
from app.core.identity import SagaId

_SAGA = struct.Struct(">cq16s")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TICK = dt.timedelta(microseconds=1)


def saga_cursor(created_at: dt.datetime, saga: SagaId) -> str:
    """The cursor after a saga in a list, newest first."""
    return _encode(_SAGA.pack(b"s", (created_at - _EPOCH) // _TICK, saga.bytes))


def read_saga_cursor(cursor: str) -> tuple[dt.datetime, SagaId]:
    """When the last saga was created, and its id.

    Raises:
        InvalidRequest: it is no cursor of this list.
    """
    try:
        kind, ticks, saga = _SAGA.unpack(_decode(cursor))
        created_at = _EPOCH + ticks * _TICK
    except (OverflowError, struct.error) as error:
        raise _refusal(cursor) from error
    if kind != b"s":
        raise _refusal(cursor)
    return created_at, SagaId(UUID(bytes=saga))


def name_cursor(name: str) -> str:
    """The cursor after a name in a list by name."""
    return _encode(b"n" + name.encode())


def read_name_cursor(cursor: str) -> str:
    """The last name.

    Raises:
        InvalidRequest: it is no cursor of this list.
    """
    kind, name = _decode(cursor)[:1], _decode(cursor)[1:]
    try:
        text = name.decode()
    except UnicodeDecodeError as error:
        raise _refusal(cursor) from error
    if kind != b"n" or not text.isprintable():
        raise _refusal(cursor)
    return text


def _encode(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).decode().rstrip("=")


def _decode(cursor: str) -> bytes:
    padded = cursor + "=" * (-len(cursor) % 4)
    try:
        return base64.b64decode(padded, altchars=b"-_", validate=True)
    except (ValueError, binascii.Error) as error:
        raise _refusal(cursor) from error


def _refusal(cursor: str) -> InvalidRequest:
    message = f"{cursor[:60]!r} is no cursor of this list"
    accepted = "the next_cursor of a page before, unchanged"
    return InvalidRequest([Fault(path="cursor", message=message, accepted=accepted)])
