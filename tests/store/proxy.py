"""A proxy between a client and Postgres that cuts the line exactly where a test wants it.

It understands enough of the protocol (PostgreSQL documentation, chapter "Frontend/Backend
Protocol") to know which statement is being run: ``Parse`` binds a text to a name, ``Bind`` runs
what was parsed under that name, ``Query`` runs a text, ``ReadyForQuery`` says that it is over.
"""

import asyncio
import contextlib
import struct
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

_PARSE, _BIND, _QUERY = b"P", b"B", b"Q"
_READY, _KEY, _ERROR = b"Z", b"K", b"E"
_SSL_REQUEST = 80877103


class Cut(Enum):
    """Where the line is cut, seen from the statement that meets the rule."""

    BEFORE = "before"
    """The server never hears of it."""
    AFTER = "after"
    """The server has carried it out; its answer is lost."""
    DURING = "during"
    """The client loses the line at once, while the server goes on and does not notice."""
    STALL = "stall"
    """Nobody loses the line, and nothing comes through any more, in either direction."""


@dataclass(slots=True)
class _Rule:
    marker: bytes
    cut: Cut
    skip: int
    times: int
    met: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, eq=False)
class _Line:
    """One client's connection, and its own connection to the server."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    statements: dict[bytes, bytes] = field(default_factory=dict)
    cut: Cut | None = None
    is_client_gone: bool = False


class Proxy:
    """Listens on a port of its own, and forwards.

    Attributes:
        url: where clients connect.
        seen: how often each statement was run, by its text.
        errors: how often the server answered with each SQLSTATE.
        refuses: new clients are cut off at once.
        hides_process: tell clients another process id than the server's, as PgBouncer does.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream)
        self._rules: list[_Rule] = []
        self._lines: set[_Line] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.seen: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.hides_process = False
        self.refuses = False
        self.url = ""

    def cut(self, marker: str, when: Cut, *, skip: int = 0, times: int = 1) -> asyncio.Event:
        """Cut the line at the statement with ``marker`` in its text; ``skip`` lets some pass.

        Returns:
            An event that is set once the line was cut.
        """
        rule = _Rule(marker.encode(), when, skip, times)
        self._rules.append(rule)
        return rule.met

    def runs(self, marker: str) -> int:
        """How often statements with ``marker`` in their text were run."""
        return sum(count for text, count in self.seen.items() if marker in text)

    def stall_all(self) -> None:
        """Let nothing through on the lines that there are; new ones work."""
        for line in self._lines:
            line.cut = Cut.STALL

    def cut_all(self) -> None:
        """Cut the lines that there are."""
        for line in self._lines:
            line.client.transport.abort()
            line.server.transport.abort()

    async def serve(
        self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter
    ) -> None:
        """One client, from its first byte to its last."""
        if self.refuses:
            client_out.transport.abort()
            return
        server_in, server_out = await self._connect()
        line = _Line(client_out, server_out)
        self._lines.add(line)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._requests(line, client_in))
                tasks.create_task(self._answers(line, server_in))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._lines.discard(line)
            client_out.transport.abort()
            server_out.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        hosts = parse_qs(self._upstream.query).get("host")
        if hosts:
            port = parse_qs(self._upstream.query).get("port", ["5432"])[0]
            return await asyncio.open_unix_connection(str(Path(hosts[0], f".s.PGSQL.{port}")))
        return await asyncio.open_connection(self._upstream.hostname, self._upstream.port or 5432)

    async def _requests(self, line: _Line, client_in: asyncio.StreamReader) -> None:
        line.server.write(await _read_startup(line, client_in))
        while True:
            try:
                kind, message = await _read(client_in)
            except (OSError, asyncio.IncompleteReadError):
                if line.cut is Cut.DURING:
                    return  # the server goes on
                raise
            text = _text_of(line, kind, message)
            if text is not None:
                self.seen[text.decode()] += 1
                self._apply(line, text)
            if line.cut is Cut.BEFORE:
                raise ConnectionAbortedError
            if line.cut is Cut.STALL:
                continue
            line.server.write(message)
            await line.server.drain()

    async def _answers(self, line: _Line, server_in: asyncio.StreamReader) -> None:
        while True:
            kind, message = await _read(server_in)
            if kind == _ERROR:
                self.errors[_sqlstate_of(message)] += 1
            if kind == _KEY and self.hides_process:
                message = message[:5] + struct.pack("!I", 1) + message[9:]
            match line.cut:
                case Cut.AFTER | Cut.DURING:
                    if kind == _READY:
                        raise ConnectionAbortedError
                case Cut.STALL:
                    pass
                case _:
                    line.client.write(message)
                    await line.client.drain()
                    continue

    def _apply(self, line: _Line, text: bytes) -> None:
        for rule in self._rules:
            if rule.marker not in text or rule.times == 0:
                continue
            if rule.skip:
                rule.skip -= 1
                continue
            rule.times -= 1
            line.cut = rule.cut
            if rule.cut is Cut.DURING:
                asyncio.get_running_loop().call_soon(self._leave, line, rule)
            else:
                rule.met.set()

    def _leave(self, line: _Line, rule: _Rule) -> None:
        line.client.transport.abort()
        rule.met.set()


def _text_of(line: _Line, kind: bytes, message: bytes) -> bytes | None:
    """The statement that a message runs, or None if it runs none."""
    body = message[5:]
    if kind == _PARSE:
        name, text, _ = body.split(b"\0", 2)
        line.statements[name] = text
    elif kind == _BIND:
        _, name, _ = body.split(b"\0", 2)
        return line.statements[name]
    elif kind == _QUERY:
        return body.rstrip(b"\0")
    return None


def _sqlstate_of(message: bytes) -> str:
    """The code in an ``ErrorResponse``: fields, each a letter and a text."""
    return next(f[1:].decode() for f in message[5:].split(b"\0") if f.startswith(b"C"))


async def _read_startup(line: _Line, client_in: asyncio.StreamReader) -> bytes:
    """The first message, which has no kind; who asks for encryption is told that there is none."""
    while True:
        head = await client_in.readexactly(4)
        body = await client_in.readexactly(struct.unpack("!I", head)[0] - 4)
        if struct.unpack("!I", body[:4])[0] != _SSL_REQUEST:
            return head + body
        line.client.write(b"N")


async def _read(stream: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await stream.readexactly(5)
    size = struct.unpack("!I", head[1:])[0]
    return head[:1], head + await stream.readexactly(size - 4)


@contextlib.asynccontextmanager
async def a_proxy(url: str) -> AsyncIterator[Proxy]:
    """A proxy to the server of ``url``, listening until the block ends."""
    proxy = Proxy(url)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    proxy.url = f"postgresql://{user}@127.0.0.1:{port}{parts.path}"
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut_all()
        await server.wait_closed()
