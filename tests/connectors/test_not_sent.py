"""Not sent is said where it is proved that no byte of the request left, and only there."""

import asyncio
import socket
import time

import pytest

from app.connectors import Connector
from app.connectors.transport import (
    HEADER_BYTES_MAX,
    HEADERS_BYTES_MAX,
    REQUEST_BYTES_MAX,
    RESERVED_HEADERS,
    URL_CHARACTERS_MAX,
)
from app.core.observation import Answered, NotSent, NotSentReason, Observation
from tests.connectors.calls import a_call, a_turn
from tests.connectors.conftest import MakeConnector
from tests.connectors.raw_server import Peer, answer, answering, black_hole, serving
from tests.waiting import wait_until


def not_sent_because(observation: Observation) -> NotSentReason:
    """The reason of what must be a ``NotSent``."""
    assert isinstance(observation, NotSent), observation
    assert observation.message
    assert len(observation.message) <= 300
    return observation.reason


async def collecting(peer: Peer) -> None:
    """Keep what arrives, until the client is gone."""
    peer.server.requests.append(await peer.wait_until_gone())


async def test_refused_connection(connector: Connector) -> None:
    """A port where nobody listens is unreachable, and the message names it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    observed = await connector.attempt(a_call(f"http://127.0.0.1:{port}/secret?token=1"))

    assert not_sent_because(observed) is NotSentReason.UNREACHABLE
    assert isinstance(observed, NotSent)
    assert f"http://127.0.0.1:{port}" in observed.message
    assert "secret" not in observed.message


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 63 + ".invalid", "under_score.invalid"])
async def test_unknown_host(connector: Connector, host: str) -> None:
    """A host that DNS does not know is unreachable."""
    observed = await connector.attempt(a_call(f"http://{host}/"))

    assert not_sent_because(observed) is NotSentReason.UNREACHABLE


async def test_tls_to_a_plain_port(connector: Connector) -> None:
    """A server that does not speak TLS is unreachable, and never sees the request."""
    received: list[bytes] = []

    async def behave(peer: Peer) -> None:
        hello = await peer.reader.read(65536)
        await peer.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        received.append(hello + await peer.wait_until_gone())

    async with serving(behave) as server:
        observed = await connector.attempt(a_call(server.url().replace("http:", "https:")))

    assert not_sent_because(observed) is NotSentReason.UNREACHABLE
    assert all(b"Idempotency-Key" not in data for data in received)


async def test_untrusted_certificate(connector: Connector) -> None:
    """A certificate that nobody vouches for is unreachable."""
    async with serving(answering(answer()), tls=True) as server:
        observed = await connector.attempt(a_call(server.url()))

    assert not_sent_because(observed) is NotSentReason.UNREACHABLE
    assert server.requests == []


async def test_connection_cut_in_the_tls_handshake(connector: Connector) -> None:
    """A reset in the handshake comes before the request."""

    async def behave(peer: Peer) -> None:
        await peer.reader.read(1)
        peer.reset()

    async with serving(behave) as server:
        observed = await connector.attempt(a_call(server.url().replace("http:", "https:")))

    assert not_sent_because(observed) is NotSentReason.UNREACHABLE


async def test_silence_in_the_tls_handshake(connector: Connector) -> None:
    """A handshake that does not end in time comes before the request."""
    async with serving(collecting) as server:
        url = server.url().replace("http:", "https:")
        observed = await connector.attempt(a_call(url, timeout_seconds=0.2))

    assert not_sent_because(observed) is NotSentReason.UNREACHABLE


async def test_connection_timeout(connector: Connector) -> None:
    """A host that does not answer the connection attempt in time is unreachable."""
    with black_hole() as port:
        observed = await connector.attempt(a_call(f"http://127.0.0.1:{port}/", timeout_seconds=0.2))

    assert not_sent_because(observed) is NotSentReason.UNREACHABLE


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/relative",
        "//127.0.0.1/",
        "http:///path",
        "http://",
        "https://:80/",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "ws://127.0.0.1/",
        "unix:///run/docker.sock",
        "http://user:password@127.0.0.1/",
        "http://user@127.0.0.1/",
        "http://127.0.0.1:80@tool.example/",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:port/",
        "http://[::1/",
        "http://127.0.0.1\\@tool.example/",
        "http://127.0.0.1/a b",
        "http://127.0.0.1/a\r\nX-Injected: 1",
        "http://127.0.0.1/a\tb",
        "http://127.0.0.1/\x00",
        "http://127.0.0.1/ü",
        "http://tööl.example/",
        "http://127.0.0.1/\ud800",
        " http://127.0.0.1/",
        "http://2130706433/",
        "http://127.1/",
        "http://a..b/",
        "http://" + "a" * 64 + ".invalid/",
        "http://127.0.0.1/" + "a" * URL_CHARACTERS_MAX,
    ],
)
async def test_forbidden_urls(connector: Connector, url: str) -> None:
    """An address that is not one plain http or https URL is not called."""
    observed = await connector.attempt(a_call(url))

    assert not_sent_because(observed) is NotSentReason.FORBIDDEN


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Injected", "1\r\nX-Other: 2"),
        ("X-Injected", "1\n"),
        ("X-Injected", "1\r"),
        ("X-Injected", "\x00"),
        ("X-Injected", "\x7f"),
        ("X-Injected", "\ud800"),
        ("X-Injected: 1\r\nX-Other", "2"),
        ("X Space", "1"),
        ("X-Colon:", "1"),
        ("", "1"),
        ("Ü", "1"),
        ("X-Long", "x" * HEADER_BYTES_MAX),
        ("x" * HEADER_BYTES_MAX, "1"),
        *((name, "1") for name in sorted(RESERVED_HEADERS)),
        ("Transfer-ENCODING", "chunked"),
    ],
)
async def test_forbidden_headers(connector: Connector, name: str, value: str) -> None:
    """A header that would end early, or frame the message anew, is not sent."""
    async with serving(collecting) as server:
        observed = await connector.attempt(a_call(server.url(), headers=((name, value),)))

    assert not_sent_because(observed) is NotSentReason.FORBIDDEN
    assert server.connections == 0


async def test_forbidden_messages_hold_no_secret(connector: Connector) -> None:
    """The message names the header, and never quotes its value."""
    call = a_call("http://127.0.0.1:9/", headers=(("Authorization", "Bearer s3cret\n"),))

    observed = await connector.attempt(call)

    assert isinstance(observed, NotSent)
    assert "Authorization" in observed.message
    assert "s3cret" not in observed.message


async def test_too_many_header_bytes(connector: Connector) -> None:
    """Headers that are too long together are not sent."""
    count = HEADERS_BYTES_MAX // 10_000 + 1
    headers = tuple((f"X-{number}", "x" * 10_000) for number in range(count))

    observed = await connector.attempt(a_call("http://127.0.0.1:9/", headers=headers))

    assert not_sent_because(observed) is NotSentReason.FORBIDDEN


@pytest.mark.parametrize("body", ["x" * (REQUEST_BYTES_MAX + 1), "\ud800"])
async def test_forbidden_bodies(connector: Connector, body: str) -> None:
    """A body that is too long, or that has no bytes, is not sent."""
    observed = await connector.attempt(a_call("http://127.0.0.1:9/", body=body))

    assert not_sent_because(observed) is NotSentReason.FORBIDDEN


@pytest.mark.parametrize("method", ["CONNECT", "post", "GET /x HTTP/1.1\r\nX: 1\r\n\r\nGET", ""])
async def test_forbidden_methods(connector: Connector, method: str) -> None:
    """A method that is none, or that opens a tunnel, is not sent."""
    observed = await connector.attempt(a_call("http://127.0.0.1:9/", method=method))

    assert not_sent_because(observed) is NotSentReason.FORBIDDEN


async def test_expired_on_a_new_connection(connector: Connector) -> None:
    """Whether it is too late is asked last: a connection is there, and no byte leaves on it."""
    async with serving(collecting) as server:
        observed = await connector.attempt(a_call(server.url(), expired=lambda: True))
        await wait_until(lambda: server.requests)

    assert not_sent_because(observed) is NotSentReason.EXPIRED
    assert server.requests == [b""]


async def test_expired_while_connecting(connector: Connector) -> None:
    """Time that passes while a connection is made counts."""
    asked: list[int] = []

    def expired() -> bool:
        asked.append(server.connections)
        return True

    async with serving(collecting) as server:
        observed = await connector.attempt(a_call(server.url(), expired=expired))

    assert not_sent_because(observed) is NotSentReason.EXPIRED
    assert len(asked) == 1


async def test_expired_on_a_kept_connection(connector: Connector) -> None:
    """Whether it is too late is asked on a kept-alive connection too; the next call still works."""
    async with serving(answering(answer())) as server:
        await connector.attempt(a_call(server.url()))
        observed = await connector.attempt(a_call(server.url(), expired=lambda: True))
        after = await connector.attempt(a_call(server.url()))

    assert not_sent_because(observed) is NotSentReason.EXPIRED
    assert isinstance(after, Answered)
    assert len(server.requests) == 2


async def test_expired_is_asked_once_when_nothing_waits(connector: Connector) -> None:
    """The question is asked right before the first byte, not whenever."""
    asked: list[bool] = []

    def expired() -> bool:
        asked.append(True)
        return False

    async with serving(answering(answer())) as server:
        await connector.attempt(a_call(server.url(), expired=expired))

    assert asked == [True]


async def test_expired_while_waiting_for_a_connection(make_connector: MakeConnector) -> None:
    """A call whose time passes while others hold all connections sends nothing once one is free."""
    connector = make_connector(connections_max=1)
    arrived, let_go = asyncio.Event(), asyncio.Event()
    is_late = False

    async def behave(peer: Peer) -> None:
        while True:
            await peer.read_request()
            arrived.set()
            await let_go.wait()
            await peer.send(answer())

    async with serving(behave) as server, asyncio.TaskGroup() as group:
        first = group.create_task(connector.attempt(a_call(server.url())))
        await arrived.wait()
        second = group.create_task(connector.attempt(a_call(server.url(), expired=lambda: is_late)))
        await a_turn()
        is_late = True
        let_go.set()

        assert isinstance(await first, Answered)
        assert not_sent_because(await second) is NotSentReason.EXPIRED
        assert len(server.requests) == 1


async def test_hopeless_waiting_ends(make_connector: MakeConnector) -> None:
    """A call whose time passes while it waits is not kept until a connection is free."""
    connector = make_connector(connections_max=1)
    arrived = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        arrived.set()
        await peer.wait_until_gone()

    async with serving(behave) as server, asyncio.TaskGroup() as group:
        first = group.create_task(connector.attempt(a_call(server.url())))
        await arrived.wait()
        asked: list[bool] = []

        def expired() -> bool:
            asked.append(True)
            return len(asked) > 1

        second = await connector.attempt(a_call(server.url(), expired=expired))
        first.cancel()

    assert not_sent_because(second) is NotSentReason.EXPIRED
    assert len(server.requests) == 1


async def test_waiting_for_a_connection_is_limited(make_connector: MakeConnector) -> None:
    """A call waits for a connection no longer than its own timeout, even if not expired."""
    connector = make_connector(connections_max=1)
    arrived = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        arrived.set()
        await peer.wait_until_gone()

    async with serving(behave) as server, asyncio.TaskGroup() as group:
        first = group.create_task(connector.attempt(a_call(server.url())))
        await arrived.wait()
        begin = time.monotonic()
        second = await connector.attempt(a_call(server.url(), timeout_seconds=0.1))
        took = time.monotonic() - begin
        first.cancel()

    assert not_sent_because(second) is NotSentReason.EXPIRED
    assert took < 3


async def test_waiting_does_not_use_up_the_exchange(make_connector: MakeConnector) -> None:
    """The time for an exchange begins when it has a connection, not when it began to wait."""
    connector = make_connector(connections_max=1)
    loop = asyncio.get_running_loop()

    async def behave(peer: Peer) -> None:
        while True:
            await peer.read_request()
            slow = asyncio.Event()
            loop.call_later(0.5, slow.set)
            await slow.wait()
            await peer.send(answer())

    async with serving(behave) as server, asyncio.TaskGroup() as group:
        calls = [a_call(server.url(), timeout_seconds=0.8) for _ in range(2)]
        attempts = [group.create_task(connector.attempt(call)) for call in calls]

    assert all(isinstance(attempt.result(), Answered) for attempt in attempts)


async def test_kept_connection_that_the_peer_closed_unseen(connector: Connector) -> None:
    """A kept connection whose end has arrived unseen is not written to: another one serves."""
    peers: list[Peer] = []

    async def behave(peer: Peer) -> None:
        peers.append(peer)
        await peer.read_request()
        await peer.send(answer())
        await peer.wait_until_gone()

    async with serving(behave) as server:
        first = await connector.attempt(a_call(server.url()))
        peers[0].shut_down_now()
        second = await connector.attempt(a_call(server.url()))

    assert isinstance(first, Answered)
    assert isinstance(second, Answered)
    assert (len(peers), len(server.requests)) == (2, 2)


@pytest.mark.parametrize("is_seen", [True, False])
async def test_unasked_answer_on_a_kept_connection(connector: Connector, *, is_seen: bool) -> None:
    """An answer that came before the request is not taken for its answer."""
    peers: list[Peer] = []

    async def behave(peer: Peer) -> None:
        peers.append(peer)
        await peer.read_request()
        await peer.send(answer(b'"asked"'))
        await peer.wait_until_gone()

    async with serving(behave) as server, serving(answering(answer())) as other:
        await connector.attempt(a_call(server.url()))
        peers[0].send_now(answer(b'"unasked"'))
        if is_seen:  # a round trip elsewhere lets the event loop read it
            await connector.attempt(a_call(other.url()))
        second = await connector.attempt(a_call(server.url()))

    assert isinstance(second, Answered)
    assert second.body == "asked"
    assert (len(peers), len(server.requests)) == (2, 2)
