"""What goes wrong after the first byte is broken off: whether it had an effect is not known."""

import asyncio
import gzip

import pytest

from app.connectors import Connector
from app.core.observation import Answered, BrokenOff, BrokenOffReason, Observation
from tests.connectors.calls import a_call, a_turn
from tests.connectors.conftest import MakeConnector
from tests.connectors.raw_server import (
    Behaviour,
    Peer,
    answer,
    answering,
    client_context,
    serving,
)
from tests.waiting import wait_until

MEBIBYTE = 1024 * 1024
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def broken_off_by(observation: Observation) -> BrokenOffReason:
    """The reason of what must be a ``BrokenOff``."""
    assert isinstance(observation, BrokenOff), observation
    assert observation.message
    assert len(observation.message) <= 300
    return observation.reason


def is_too_large(observation: Observation) -> bool:
    """Whether an answer came whose body was larger than is taken: its status counts."""
    assert isinstance(observation, Answered), observation
    assert observation.status == 200
    return not observation.readable and "more than" in str(observation.body)


def saying(data: bytes) -> Behaviour:
    """Read a request, say ``data``, and close."""

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(data)

    return behave


def saying_and_waiting(data: bytes) -> Behaviour:
    """Read a request, say ``data``, and leave the client waiting."""

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(data)
        await peer.wait_until_gone()

    return behave


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 20", id="half a status line"),
        pytest.param(HEAD, id="half a head"),
        pytest.param(HEAD + b"Content-Length: 10\r\n\r\n", id="head alone"),
        pytest.param(HEAD + b"Content-Length: 10\r\n\r\n{", id="truncated body"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{", id="truncated chunk"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", id="no last chunk"),
        pytest.param(
            HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n", id="bad chunk size"
        ),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n", id="negative chunk"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}{}\r\n", id="chunk overrun"),
        pytest.param(HEAD + b"Content-Length: two\r\n\r\n{}", id="bad length"),
        pytest.param(
            HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            id="two framings",
        ),
        pytest.param(b"SSH-2.0-OpenSSH_9.9\r\n", id="another protocol"),
        pytest.param(b"\x00\xff" * 100, id="garbage"),
        pytest.param(answer(b"{}", status=b"999 Odd"), id="status out of range"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n", id="interim answer alone"),
    ],
)
async def test_incomplete_and_invalid_answers_break_off(connector: Connector, said: bytes) -> None:
    """An answer that ends too early, or is not HTTP, is no answer."""
    async with serving(saying(said)) as server:
        observed = await connector.attempt(a_call(server.url()))

    assert broken_off_by(observed) is BrokenOffReason.RESET


async def test_reset_before_the_answer(connector: Connector) -> None:
    """A connection reset after the request was read is broken off."""

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        peer.reset()

    async with serving(behave) as server:
        observed = await connector.attempt(a_call(server.url()))

    assert broken_off_by(observed) is BrokenOffReason.RESET


async def test_reset_after_the_headers(connector: Connector) -> None:
    """A connection reset in the middle of an answer is broken off, whatever its status."""
    head_is_out = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD + b"Content-Length: 10\r\n\r\n{")
        head_is_out.set()
        peer.reset()

    async with serving(behave) as server:
        observed = await connector.attempt(a_call(server.url()))

    assert head_is_out.is_set()
    assert broken_off_by(observed) is BrokenOffReason.RESET


async def test_half_close_without_an_answer(connector: Connector) -> None:
    """A tool that ends its side of the stream unanswered, and goes on reading, breaks off."""

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        peer.half_close()
        await peer.wait_until_gone()

    async with serving(behave) as server:
        observed = await connector.attempt(a_call(server.url()))

    assert broken_off_by(observed) is BrokenOffReason.RESET


async def test_tls_cut_in_the_middle(make_connector: MakeConnector) -> None:
    """A TLS connection cut in the middle of an answer breaks off."""
    connector = make_connector(ssl_context=client_context())

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD + b"Content-Length: 10\r\n\r\n{")
        peer.reset()

    async with serving(behave, tls=True) as server:
        observed = await connector.attempt(a_call(server.url()))

    assert broken_off_by(observed) is BrokenOffReason.RESET


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="silent"),
        pytest.param(HEAD, id="half a head"),
        pytest.param(HEAD + b"Content-Length: 10\r\n\r\n{", id="half a body"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" * 3, id="interim answers alone"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", id="no last chunk"),
    ],
)
async def test_silence_beyond_the_deadline(connector: Connector, said: bytes) -> None:
    """No complete answer within the timeout is broken off as timed out."""
    async with serving(saying_and_waiting(said)) as server:
        observed = await connector.attempt(a_call(server.url(), timeout_seconds=0.2))

    assert broken_off_by(observed) is BrokenOffReason.TIMED_OUT


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        pytest.param(HEAD, b"X-Drop: 1\r\n", id="head"),
        pytest.param(HEAD + b"Content-Length: 1000000\r\n\r\n", b"[", id="body"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n[\r\n", id="chunks"),
        pytest.param(b"", b"HTTP/1.1 102 Processing\r\n\r\n", id="interim answers"),
    ],
)
async def test_drip_feed_beyond_the_deadline(
    connector: Connector, head: bytes, drop: bytes
) -> None:
    """The deadline is for the exchange as a whole: an answer that trickles in does not move it."""
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(head)

        def drip() -> None:
            if not gone.is_set():
                peer.writer.write(drop)
                loop.call_later(0.02, drip)

        drip()
        await peer.wait_until_gone()
        gone.set()

    async with serving(behave) as server:
        begin = loop.time()
        observed = await connector.attempt(a_call(server.url(), timeout_seconds=0.3))
        took = loop.time() - begin
        await gone.wait()

    assert broken_off_by(observed) is BrokenOffReason.TIMED_OUT
    assert 0.29 < took < 5


async def test_deadline_is_not_rounded_up(connector: Connector) -> None:
    """A timeout above five seconds ends to the moment too, since quiet is counted from it."""
    loop = asyncio.get_running_loop()
    async with serving(saying_and_waiting(b"")) as server:
        begin = loop.time()
        observed = await connector.attempt(a_call(server.url(), timeout_seconds=5.1))
        took = loop.time() - begin

    assert broken_off_by(observed) is BrokenOffReason.TIMED_OUT
    assert 5.09 < took < 5.6


async def test_endless_body(connector: Connector) -> None:
    """An answer without end is cut at the limit, and its connection closed."""
    gone = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        try:
            await peer.send(HEAD + b"\r\n")
            while True:
                await peer.send(b"x" * 65536)
        finally:
            gone.set()

    async with serving(behave) as server:
        observed = await connector.attempt(a_call(server.url()))
        await gone.wait()

    assert is_too_large(observed)


@pytest.mark.parametrize("excess", [0, 1])
async def test_limit_is_exact(connector: Connector, excess: int) -> None:
    """A body of exactly the limit is read; one byte more breaks off."""
    body = b'"' + b"x" * (MEBIBYTE - 2 + excess) + b'"'

    async with serving(answering(answer(body))) as server:
        observed = await connector.attempt(a_call(server.url()))

    if excess:
        assert is_too_large(observed)
    else:
        assert isinstance(observed, Answered)
        assert observed.body_bytes == MEBIBYTE


@pytest.mark.parametrize("layers", [1, 2])
async def test_gzip_bomb(connector: Connector, layers: int) -> None:
    """A small body that unfolds beyond the limit breaks off, at the limit."""
    body = b"0" * (200 * MEBIBYTE)
    for _ in range(layers):
        body = gzip.compress(body, compresslevel=1)
    encodings = b"Content-Encoding: " + b", ".join([b"gzip"] * layers)

    async with serving(answering(answer(body, encodings))) as server:
        observed = await connector.attempt(a_call(server.url()))

    assert is_too_large(observed)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(b"X-Long: " + b"x" * 100_000 + b"\r\n", id="one long"),
        pytest.param(b"X-Many: 1\r\n" * 1000, id="many"),
        pytest.param(b"x" * 100_000 + b": 1\r\n", id="long name"),
    ],
)
@pytest.mark.parametrize("is_trickling", [False, True])
async def test_huge_headers(connector: Connector, headers: bytes, *, is_trickling: bool) -> None:
    """A head beyond the limits breaks off as oversize, in one piece or in many."""
    said = HEAD + headers + b"Content-Length: 2\r\n\r\n{}"

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        step = 1000 if is_trickling else len(said)
        for start in range(0, len(said), step):
            await peer.send(said[start : start + step])
            await a_turn()

    async with serving(behave) as server:
        observed = await connector.attempt(a_call(server.url()))

    assert broken_off_by(observed) is BrokenOffReason.OVERSIZE


async def test_endless_header_line(connector: Connector) -> None:
    """A header line without end breaks off, rather than filling memory until the deadline."""

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD + b"X-Endless: ")
        while True:
            await peer.send(b"x" * 65536)

    async with serving(behave) as server:
        observed = await connector.attempt(a_call(server.url()))

    assert broken_off_by(observed) is BrokenOffReason.OVERSIZE


async def test_unasked_protocol_switch(connector: Connector) -> None:
    """A 101 that nobody asked for is not an answer, and does not hang."""
    said = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n"

    async with serving(saying_and_waiting(said)) as server:
        observed = await connector.attempt(a_call(server.url()))

    assert broken_off_by(observed) is BrokenOffReason.RESET


async def test_nothing_leaves_after_a_timeout(connector: Connector) -> None:
    """What a tool had not read when the exchange ended never reaches it, not even from buffers."""
    ended = asyncio.Event()
    received: list[int] = []

    async def behave(peer: Peer) -> None:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it reads as well
        await ended.wait()
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        received.append(len(await peer.wait_until_gone()))

    async with serving(behave, receive_buffer_bytes=4096) as server:
        call = a_call(server.url(), body="x" * MEBIBYTE, timeout_seconds=0.3)
        observed = await connector.attempt(call)
        ended.set()
        await wait_until(lambda: received)

    assert broken_off_by(observed) is BrokenOffReason.TIMED_OUT
    assert received[0] < MEBIBYTE // 2


async def test_connection_is_reset_after_a_timeout(connector: Connector) -> None:
    """A timed-out exchange closes its connection by a reset, so that the kernel sends no more."""
    endings: list[type[BaseException] | None] = []
    over = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        try:
            await peer.reader.read()
        except ConnectionResetError:
            endings.append(ConnectionResetError)
        else:
            endings.append(None)
        over.set()

    async with serving(behave) as server:
        await connector.attempt(a_call(server.url(), timeout_seconds=0.2))
        await over.wait()

    assert endings == [ConnectionResetError]
