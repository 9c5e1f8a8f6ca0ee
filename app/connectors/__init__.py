"""The ways for an attempt to reach the world; what they see, never what it means.

A connector turns a committed ``OutgoingCall`` into an ``Observation``. ``http`` speaks HTTP's words
(headers, bodies) and leaves bytes and sockets to a ``Transport``; ``python`` calls functions of the
sagas directory in this process. ``Connectors`` picks one by the request; ``MeteredConnector``
counts what another sees.
"""

from app.connectors.aiohttp_transport import AiohttpTransport
from app.connectors.base import Connector, OutgoingCall
from app.connectors.functions import (
    Function,
    Functions,
    InvalidFunctions,
    LoadFault,
    load_functions,
)
from app.connectors.http import HttpConnector
from app.connectors.metered import MeteredConnector
from app.connectors.python import PythonConnector
from app.connectors.registry import Connectors
from app.connectors.transport import Transport, TransportAnswer, TransportRequest

__all__ = [
    "AiohttpTransport",
    "Connector",
    "Connectors",
    "Function",
    "Functions",
    "HttpConnector",
    "InvalidFunctions",
    "LoadFault",
    "MeteredConnector",
    "OutgoingCall",
    "PythonConnector",
    "Transport",
    "TransportAnswer",
    "TransportRequest",
    "load_functions",
]
