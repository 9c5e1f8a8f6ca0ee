"""The ways for an attempt to reach the world; what they see, never what it means.

A connector turns a committed ``OutgoingCall`` into an ``Observation``. ``http`` is the only one so
far: it speaks HTTP's words (headers, bodies) and leaves bytes and sockets to a ``Transport``.
"""

from app.connectors.aiohttp_transport import AiohttpTransport
from app.connectors.base import Connector, OutgoingCall
from app.connectors.http import HttpConnector
from app.connectors.transport import Transport, TransportAnswer, TransportRequest

__all__ = [
    "AiohttpTransport",
    "Connector",
    "HttpConnector",
    "OutgoingCall",
    "Transport",
    "TransportAnswer",
    "TransportRequest",
]
