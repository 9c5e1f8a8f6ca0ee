"""A wire to Postgres that can be cut at will: it forwards bytes, until a test says otherwise."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit


class Wire:
    """One connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.is_hole = False
        self.is_deaf = False
        self._client = client
        self._server = server
        self._cut_after: int | None = None

    def cut(self, *, is_forwarded: bool) -> None:
        """Break at the next thing that the client says; Postgres hears it first, or never."""
        self._cut_after = 1 if is_forwarded else 0

    def close(self) -> None:
        """Break now."""
        for end in (self._client, self._server):
            with suppress(OSError, RuntimeError):
                end.transport.abort()

    async def up(self, reader: asyncio.StreamReader) -> None:
        """Carry what the client says."""
        with suppress(OSError):
            while data := await reader.read(65_536):
                if self.is_hole:
                    continue
                if self._cut_after == 0:
                    break
                self._server.write(data)
                await self._server.drain()
        self.close()

    async def down(self, reader: asyncio.StreamReader) -> None:
        """Carry what Postgres says."""
        with suppress(OSError):
            while data := await reader.read(65_536):
                if self.is_hole or self.is_deaf:
                    continue
                if self._cut_after == 1:
                    # It has heard us, has done what we asked, and nobody will know.
                    break
                self._client.write(data)
                await self._client.drain()
        self.close()


class Proxy:
    """Stands between the service and the Unix socket of a Postgres server."""

    def __init__(self, database_url: str) -> None:
        parts = urlsplit(database_url)
        server = parse_qs(parts.query)
        self.wires: list[Wire] = []
        self.cuts = 0
        self._path = parts.path
        self._socket = f"{server['host'][0]}/.s.PGSQL.{server['port'][0]}"
        self._port = 0

    @property
    def database_url(self) -> str:
        """The way through the proxy."""
        return f"postgresql://amends@127.0.0.1:{self._port}{self._path}"

    def cut_some(self, dice: random.Random) -> None:
        """Cut some wires, at what each says next: half of them before it arrives, half after."""
        for wire in dice.sample(self.wires, max(1, len(self.wires) // 2)):
            wire.cut(is_forwarded=dice.random() < 0.5)
            self.cuts += 1

    def swallow(self) -> int:
        """Let the wires of now swallow all, both ways, without a word; new ones are sound."""
        for wire in self.wires:
            wire.is_hole = True
        return len(self.wires)

    def deafen(self) -> int:
        """Let the wires of now carry what the client says, and swallow every answer."""
        for wire in self.wires:
            wire.is_deaf = True
        return len(self.wires)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Proxy"]:
        """Serve while the context is open."""
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for wire in list(self.wires):
                wire.close()
            await server.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_unix_connection(self._socket)
        except OSError:
            writer.transport.abort()
            return
        wire = Wire(writer, server_writer)
        self.wires.append(wire)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(wire.up(reader))
                group.create_task(wire.down(server_reader))
        finally:
            self.wires.remove(wire)
            wire.close()
