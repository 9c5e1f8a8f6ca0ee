"""One attempt is one request: nothing is sent again, elsewhere, or with something added."""

import asyncio
import re
from pathlib import Path
from typing import cast

import pytest

from app.connectors import Connector
from app.core.observation import Answered, BrokenOff, BrokenOffReason
from tests.connectors.calls import KEY, SAGA, a_call
from tests.connectors.raw_server import (
    Peer,
    answer,
    answering,
    closing_the_second_time,
    serving,
)

METHODS = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"]


def header_of(request: bytes, name: bytes) -> list[bytes]:
    """The values of a header on the wire."""
    lines = request.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    pairs = [line.split(b": ", 1) for line in lines]
    return [value for given, value in pairs if given.lower() == name.lower()]


@pytest.mark.parametrize("method", METHODS)
async def test_no_silent_resend(connector: Connector, method: str) -> None:
    """A kept connection closed after the request was read does not make the request leave again."""
    async with serving(closing_the_second_time) as server:
        call = a_call(server.url(), method=method, body=None, content_type=None)
        first = await connector.attempt(call)
        second = await connector.attempt(call)

    assert isinstance(first, Answered)
    assert isinstance(second, BrokenOff)
    assert second.reason is BrokenOffReason.RESET
    assert len(server.requests) == 2
    assert server.connections == 1


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_redirects_are_not_followed(connector: Connector, status: int, method: str) -> None:
    """A redirect is an answer like any other."""
    async with serving(answering(answer())) as elsewhere:
        location = f"Location: {elsewhere.url()}".encode()
        redirect = answer(b"", location, status=b"%d Elsewhere" % status)
        async with serving(answering(redirect)) as server:
            observed = await connector.attempt(a_call(server.url(), method=method))

    assert isinstance(observed, Answered)
    assert observed.status == status
    assert len(server.requests) == 1
    assert elsewhere.connections == 0


async def test_same_bytes_at_each_attempt(connector: Connector) -> None:
    """A resend differs in its attempt number and its span, and in nothing else."""
    headers = (("X-Zeta", "1"), ("X-Alpha", "2"), ("X-Zeta", "3"))
    body = '{"name": "Zoë", "b": 1, "a": 2}'
    async with serving(answering(answer())) as server:
        for attempt in range(1, 4):
            await connector.attempt(
                a_call(
                    server.url("/a/../b%2Fc/?q=%20&q=1;2&empty="),
                    headers=headers,
                    body=body,
                    attempt=attempt,
                )
            )
        different = re.compile(rb"(Amends-Attempt: |traceparent: 00-\w+-)\w+")
        sent = {different.sub(rb"\1", request) for request in server.requests}

        (request,) = sent
        assert request.startswith(b"POST /a/../b%2Fc/?q=%20&q=1;2&empty= HTTP/1.1\r\n")
        assert request.endswith(b"\r\n\r\n" + body.encode())
        assert b"X-Zeta: 1\r\nX-Alpha: 2\r\nX-Zeta: 3\r\n" in request
        assert len(set(server.requests)) == 3


async def test_headers_on_the_wire(connector: Connector) -> None:
    """A request says who calls, for which saga, and under which key; nothing else is added."""
    async with serving(answering(answer())) as server:
        await connector.attempt(a_call(server.url(), attempt=7))

    (request,) = server.requests
    names = [line.partition(b":")[0] for line in request.split(b"\r\n")[1:-2]]
    assert header_of(request, b"Idempotency-Key") == [str(KEY).encode()]
    assert header_of(request, b"Amends-Saga") == [str(SAGA).encode()]
    assert header_of(request, b"Amends-Step") == [b"flight"]
    assert header_of(request, b"Amends-Call") == [b"action"]
    assert header_of(request, b"Amends-Attempt") == [b"7"]
    assert header_of(request, b"Accept") == [b"application/json"]
    assert header_of(request, b"Accept-Encoding") == [b"gzip, deflate"]
    assert header_of(request, b"Content-Type") == [b"application/json"]
    assert header_of(request, b"Content-Length") == [b"11"]
    assert header_of(request, b"Host") == [f"127.0.0.1:{server.port}".encode()]
    (user_agent,) = header_of(request, b"User-Agent")
    assert re.fullmatch(rb"amends/[0-9.]+", user_agent)
    (traceparent,) = header_of(request, b"traceparent")
    assert re.fullmatch(rb"00-" + SAGA.hex.encode() + rb"-[0-9a-f]{16}-01", traceparent)
    assert len(names) == len(set(names)) == 12


async def test_our_headers_win(connector: Connector) -> None:
    """A definition cannot replace, or double, what a tool deduplicates by."""
    headers = (("idempotency-key", "mine"), ("AMENDS-SAGA", "mine"), ("TraceParent", "mine"))

    async with serving(answering(answer())) as server:
        await connector.attempt(a_call(server.url(), headers=headers))

    assert b"mine" not in server.requests[0]


@pytest.mark.parametrize("method", METHODS)
async def test_request_without_a_body(connector: Connector, method: str) -> None:
    """Without a body there is no content type, whatever the method."""
    async with serving(answering(answer())) as server:
        call = a_call(server.url(), method=method, body=None, content_type=None)
        observed = await connector.attempt(call)

    assert isinstance(observed, Answered)
    assert server.requests[0].startswith(method.encode() + b" / HTTP/1.1\r\n")
    assert header_of(server.requests[0], b"Content-Type") == []
    assert header_of(server.requests[0], b"Content-Length") in ([], [b"0"])


@pytest.mark.parametrize("content_type", [None, "application/json"])
async def test_headers_that_are_the_definitions_to_say(
    connector: Connector, content_type: str | None
) -> None:
    """What the body is, what answer is wanted and by whom stands as the definition says it."""
    theirs = (("content-type", "text/csv"), ("ACCEPT", "text/xml"), ("User-Agent", "robot"))

    async with serving(answering(answer())) as server:
        await connector.attempt(
            a_call(server.url(), headers=theirs, body="a,b", content_type=content_type)
        )

    (request,) = server.requests
    assert header_of(request, b"Content-Type") == [b"text/csv"]
    assert header_of(request, b"Accept") == [b"text/xml"]
    assert header_of(request, b"User-Agent") == [b"robot"]


async def test_environment_is_ignored(
    connector: Connector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither proxy variables nor a netrc file change where a request goes, or what it says."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    async with serving(answering(answer())) as server, serving(answering(answer())) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url())

        observed = await connector.attempt(a_call(server.url()))

    assert isinstance(observed, Answered)
    assert proxy.connections == 0
    assert len(server.requests) == 1
    assert header_of(server.requests[0], b"Authorization") == []


async def test_no_cookies(connector: Connector) -> None:
    """A cookie set by one answer is not sent with the next request."""
    async with serving(answering(answer(b"", b"Set-Cookie: a=b"))) as server:
        for _ in range(2):
            await connector.attempt(a_call(server.url()))

    assert header_of(server.requests[1], b"Cookie") == []


async def test_connections_are_kept(connector: Connector) -> None:
    """Calls one after the other share a connection."""
    async with serving(answering(answer(b"{}"))) as server:
        for _ in range(3):
            await connector.attempt(a_call(server.url()))

    assert server.connections == 1
    assert len(server.requests) == 3


async def test_connections_are_closed_where_the_tool_asks(connector: Connector) -> None:
    """``Connection: close`` ends a connection, quietly."""
    async with serving(answering(answer(b"{}", b"Connection: close"))) as server:
        observed = [await connector.attempt(a_call(server.url())) for _ in range(3)]

    assert all(isinstance(each, Answered) for each in observed)
    assert server.connections == 3


async def test_surplus_answers_are_not_kept(connector: Connector) -> None:
    """Two answers to one request: the second one belongs to nobody."""
    async with serving(answering(answer(b"1") + answer(b"2"), answer(b"3"))) as server:
        observed = [await connector.attempt(a_call(server.url())) for _ in range(2)]

    assert [cast("Answered", each).body for each in observed] == [1, 1]
    assert server.connections == 2


async def test_interim_answers_are_passed_over(connector: Connector) -> None:
    """1xx answers come before the answer, and are not it."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"

    async with serving(answering(interim + answer(b"1", status=b"201 Created"))) as server:
        observed = await connector.attempt(a_call(server.url()))

    assert isinstance(observed, Answered)
    assert observed.status == 201
    assert observed.body == 1


async def test_expect_continue(connector: Connector) -> None:
    """With ``Expect: 100-continue`` the body waits for the tool."""
    heads: list[bytes] = []

    async def behave(peer: Peer) -> None:
        heads.append(await peer.reader.readuntil(b"\r\n\r\n"))
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        heads.append(await peer.reader.readexactly(11))
        await peer.send(answer(b"1"))
        await peer.wait_until_gone()

    async with serving(behave) as server:
        call = a_call(server.url(), headers=(("Expect", "100-continue"),))
        observed = await connector.attempt(call)

    assert isinstance(observed, Answered)
    assert heads[1] == b'{"seat": 1}'


async def test_answer_before_the_body_was_read(connector: Connector) -> None:
    """A tool may refuse a long body without reading it."""

    async def behave(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(answer(b'"long"', b"Connection: close", status=b"413 Too Large"))
        await peer.wait_until_gone()

    async with serving(behave) as server:
        call = a_call(server.url(), body="x" * 1024 * 1024)
        observed = [await connector.attempt(call) for _ in range(2)]

    assert [cast("Answered", each).status for each in observed] == [413, 413]


async def test_long_body_arrives_whole(connector: Connector) -> None:
    """A body at the limit arrives byte for byte."""
    body = "ä" * (1024 * 512)

    async with serving(answering(answer())) as server:
        observed = await connector.attempt(a_call(server.url(), body=body))

    assert isinstance(observed, Answered)
    assert server.requests[0].endswith(b"\r\n\r\n" + body.encode())


@pytest.mark.parametrize("family", ["localhost", "127.0.0.1"])
async def test_names_and_addresses(connector: Connector, family: str) -> None:
    """A tool is reached by name or by address."""
    async with serving(answering(answer())) as server:
        observed = await connector.attempt(a_call(f"http://{family}:{server.port}/"))

    assert isinstance(observed, Answered)


async def test_calls_do_not_mix(connector: Connector) -> None:
    """Many calls at once each get their own answer."""

    async def behave(peer: Peer) -> None:
        while True:
            request = await peer.read_request()
            await peer.send(answer(request.partition(b"\r\n\r\n")[2]))

    async with serving(behave) as server, asyncio.TaskGroup() as group:
        attempts = [
            group.create_task(connector.attempt(a_call(server.url(), body=str(number))))
            for number in range(300)
        ]

    answers = [cast("Answered", attempt.result()).body for attempt in attempts]
    assert answers == list(range(300))
