"""What comes back is read as what it is: JSON, text, nothing, or unreadable; never judged."""

import gzip
import zlib

import pytest

from app.connectors import Connector
from app.connectors.answers import EXCERPT_CHARACTERS_MAX, NESTING_MAX, RETRY_AFTER_CHARACTERS_MAX
from app.connectors.content_encoding import MEMBERS_MAX
from app.core.json_value import JsonValue
from app.core.observation import Answered
from tests.connectors.calls import a_call
from tests.connectors.raw_server import Behaviour, Peer, answer, answering, serving

JSON = b"Content-Type: application/json"
TEXT = b"Content-Type: text/plain"
HTML = b"Content-Type: text/html; charset=utf-8"
UTF_16 = b"Content-Type: text/plain; charset=UTF-16"
LATIN_1 = b"Content-Type: text/plain; charset=iso-8859-1"


async def answered(connector: Connector, said: bytes, *, method: str = "POST") -> Answered:
    """What a call came to whose tool said ``said``."""
    async with serving(answering(said)) as server:
        observed = await connector.attempt(a_call(server.url(), method=method))
    assert isinstance(observed, Answered), observed
    return observed


def closing_after(said: bytes) -> Behaviour:
    """Answer one request, and close."""

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(said)

    return behave


def gzipped(data: bytes) -> bytes:
    """The same bytes each time: workers that share the tests must name them alike."""
    return gzip.compress(data, mtime=0)


def nested(depth: int) -> bytes:
    """Objects and arrays within each other."""
    return (
        b'{"a":' * (depth // 2)
        + b"[" * (depth - depth // 2)
        + b"]" * (depth - depth // 2)
        + b"}" * (depth // 2)
    )


@pytest.mark.parametrize(
    ("body", "header", "expected"),
    [
        pytest.param(b'{"a": [1, 2.5, null, true, "x"]}', JSON, {"a": [1, 2.5, None, True, "x"]}),
        pytest.param(b'{"a": 1}', b"Content-Type: APPLICATION/JSON ; charset=utf-8", {"a": 1}),
        pytest.param(b'{"a": 1}', b"Content-Type: application/problem+json", {"a": 1}),
        pytest.param(b'{"a": 1}', TEXT, {"a": 1}, id="JSON that says text"),
        pytest.param(b'{"a": 1}', b"X-Nothing: 1", {"a": 1}, id="JSON that says nothing"),
        pytest.param(b"null", JSON, None, id="null"),
        pytest.param(b'{"a": 1, "a": 2}', JSON, {"a": 2}, id="last of equal keys"),
        pytest.param(b'"a\\u0000b"', JSON, "a\x00b", id="NUL in JSON"),
        pytest.param(b"a\x00b", TEXT, "a\x00b", id="NUL in text"),
        pytest.param(b"\xef\xbb\xbf[1]", JSON, [1], id="BOM before JSON"),
        pytest.param(b"\xef\xbb\xbfhello", TEXT, "hello", id="BOM before text"),
        pytest.param(b"<html>\xc3\xbc</html>", HTML, "<html>ü</html>", id="html"),
        pytest.param(b"caf\xe9", LATIN_1, "café", id="latin-1"),
        pytest.param("hällo".encode("utf-16"), UTF_16, "hällo", id="utf-16"),
        pytest.param(b"hello", b"Content-Type: text/plain; charset=x-made-up", "hello"),
        pytest.param(b"hello", b'Content-Type: text/plain; charset="us-ascii"', "hello"),
        pytest.param(b"hello", b"Content-Type: text/plain; charset=zlib", "hello"),
        pytest.param(b"hello", b"Content-Type: ;;;=;", "hello", id="odd content type"),
        pytest.param(
            b'{"a": "caf\xe9"}',
            b"Content-Type: application/json; charset=iso-8859-1",
            {"a": "café"},
            id="JSON in latin-1",
        ),
        pytest.param(b"NaN", TEXT, "NaN", id="NaN as text"),
        pytest.param(b"9007199254740993", JSON, 9007199254740993, id="64 bits stay exact"),
        pytest.param(b"1" + b"0" * 30, JSON, 1e30, id="more than 64 bits"),
        pytest.param(b"a=1&b=2", b"Content-Type: application/x-www-form-urlencoded", "a=1&b=2"),
    ],
)
async def test_readable_bodies(
    connector: Connector, body: bytes, header: bytes, expected: JsonValue
) -> None:
    """JSON is known by parsing, and what is not JSON is text."""
    observed = await answered(connector, answer(body, header))

    assert observed.readable
    assert observed.body_bytes == len(body)
    assert observed.body == expected
    assert type(observed.body) is type(expected)


async def test_nesting_at_the_limit(connector: Connector) -> None:
    """A body that nests as deep as allowed is read, however many containers it has."""
    body = b"[" + b"[],{}," * 1000 + nested(NESTING_MAX - 1) + b"]"

    observed = await answered(connector, answer(body, JSON))

    assert observed.readable
    assert isinstance(observed.body, list)
    assert len(observed.body) == 2001


@pytest.mark.parametrize(
    ("body", "header"),
    [
        pytest.param(b"{", JSON, id="half"),
        pytest.param(b"{'a': 1}", JSON, id="not quite JSON"),
        pytest.param(b"<html></html>", JSON, id="html that says JSON"),
        pytest.param(b"NaN", JSON, id="NaN"),
        pytest.param(b"[Infinity]", JSON, id="infinity"),
        pytest.param(b"1e999", JSON, id="too large for a float"),
        pytest.param(b'"\\ud800"', JSON, id="lone surrogate"),
        pytest.param(b'"caf\xe9"', JSON, id="JSON that is not UTF-8"),
        pytest.param(b"hello", b"Content-Type: application/vnd.tool+json", id="+json"),
        pytest.param(b"caf\xe9", TEXT, id="text that is not UTF-8"),
        pytest.param(b"\xed\xa0\x80", TEXT, id="encoded surrogate"),
        pytest.param(b"caf\xe9", b"Content-Type: text/plain; charset=us-ascii", id="not ascii"),
        pytest.param(b"abc", UTF_16, id="odd utf-16"),
        pytest.param(b"\x00\xd8", b"Content-Type: a/b; charset=utf-16le", id="utf-16 surrogate"),
        pytest.param(bytes(range(256)) * 10, b"Content-Type: image/png", id="bytes"),
        pytest.param(nested(NESTING_MAX + 1), JSON, id="nesting beyond the limit"),
        pytest.param(nested(NESTING_MAX + 1), TEXT, id="nesting beyond the limit, as text"),
        pytest.param(nested(10_000), JSON, id="nesting beyond the parser's limit"),
        pytest.param(b"[" * 1_000_000, JSON, id="nesting without end"),
        pytest.param(b"caf\xc3\xa9", b"Content-Encoding: br", id="unknown encoding"),
        pytest.param(b"not gzip", b"Content-Encoding: gzip", id="not gzip"),
        pytest.param(gzipped(b"{}")[:-1], b"Content-Encoding: gzip", id="half a gzip"),
        pytest.param(gzipped(b"{}") + b"more", b"Content-Encoding: gzip", id="more than gzip"),
        pytest.param(gzipped(b"") * 20_000, b"Content-Encoding: gzip", id="gzip of many members"),
        pytest.param(
            gzipped(gzipped(gzipped(b"{}"))),
            b"Content-Encoding: gzip, gzip, gzip",
            id="three layers",
        ),
    ],
)
@pytest.mark.parametrize("status", [b"200 OK", b"422 Unprocessable"])
async def test_unreadable_bodies(
    connector: Connector, body: bytes, header: bytes, status: bytes
) -> None:
    """An unreadable body keeps its status, and an excerpt."""
    observed = await answered(connector, answer(body, header, status=status))

    assert not observed.readable
    assert observed.status == int(status[:3])
    assert isinstance(observed.body, str)
    assert 0 < len(observed.body) <= EXCERPT_CHARACTERS_MAX
    observed.body.encode()  # can be stored
    assert observed.body_bytes == len(body)


@pytest.mark.parametrize(
    ("said", "method"),
    [
        pytest.param(answer(b"", JSON), "POST", id="empty"),
        pytest.param(answer(b" \r\n", JSON), "POST", id="white space"),
        pytest.param(answer(b"\xef\xbb\xbf"), "POST", id="BOM alone"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", "POST", id="204"),
        pytest.param(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "GET", id="304"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "HEAD", id="HEAD"),
        pytest.param(answer(b"", b"Content-Encoding: gzip"), "POST", id="empty and encoded"),
        pytest.param(answer(gzipped(b""), b"Content-Encoding: gzip"), "POST", id="empty gzip"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST",
            id="no chunks",
        ),
    ],
)
async def test_empty_bodies(connector: Connector, said: bytes, method: str) -> None:
    """No body is ``None``, and readable."""
    observed = await answered(connector, said, method=method)

    assert observed.readable
    assert observed.body is None


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        pytest.param("gzip", gzipped(b"[1]"), id="gzip"),
        pytest.param("GZIP", gzipped(b"[1]"), id="upper case"),
        pytest.param("x-gzip", gzipped(b"[1]"), id="old name"),
        pytest.param("deflate", zlib.compress(b"[1]"), id="deflate"),
        pytest.param("deflate", zlib.compress(b"[1]", wbits=-15), id="raw deflate"),
        pytest.param("identity", b"[1]", id="identity"),
        pytest.param("", b"[1]", id="none"),
        pytest.param("deflate, gzip", gzipped(zlib.compress(b"[1]")), id="two layers"),
        pytest.param("gzip", gzipped(b"[") + gzipped(b"1]"), id="two members"),
        pytest.param("gzip", gzipped(b"") * (MEMBERS_MAX - 1) + gzipped(b"[1]"), id="members"),
    ],
)
async def test_content_encodings(connector: Connector, encoding: str, body: bytes) -> None:
    """What we ask for, and what servers send all the same, is unfolded."""
    header = f"Content-Encoding: {encoding}".encode()

    observed = await answered(connector, answer(body, header))

    assert observed.body == [1]
    assert observed.body_bytes == 3


async def test_body_that_ends_with_the_connection(connector: Connector) -> None:
    """Without a length, a body ends where the tool closes the connection (RFC 9112, 6.3)."""
    said = b"HTTP/1.0 200 OK\r\n\r\n[1, 2]"
    async with serving(closing_after(said)) as server:
        observed = await connector.attempt(a_call(server.url()))

    assert isinstance(observed, Answered)
    assert observed.body == [1, 2]


@pytest.mark.parametrize("status", [200, 202, 299, 300, 400, 409, 425, 429, 500, 503, 599])
async def test_statuses_pass_through(connector: Connector, status: int) -> None:
    """The status is reported as it is."""
    observed = await answered(connector, answer(b"1", status=b"%d Whatever" % status))

    assert observed.status == status
    assert observed.body == 1


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), None),
        ((b"Retry-After: 120",), "120"),
        ((b"retry-after: Fri, 31 Dec 1999 23:59:59 GMT",), "Fri, 31 Dec 1999 23:59:59 GMT"),
        ((b"Retry-After: soon",), "soon"),
        ((b"Retry-After:",), ""),
        ((b"Retry-After: 1", b"Retry-After: 2"), "1"),
        ((b"Retry-After: " + b"9" * 8000,), "9" * RETRY_AFTER_CHARACTERS_MAX),
        ((b"Retry-After: \xff",), "?"),
    ],
)
async def test_retry_after_passes_through(
    connector: Connector, headers: tuple[bytes, ...], expected: str | None
) -> None:
    """``Retry-After`` is reported as received, sense or nonsense, if it can be stored."""
    observed = await answered(connector, answer(b"", *headers, status=b"503 Busy"))

    assert observed.retry_after == expected
