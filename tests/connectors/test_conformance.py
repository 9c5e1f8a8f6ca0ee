"""Every connector tells the core the same of the same deed, and calls a tool at most once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.core.json_value import JsonValue
from app.core.observation import (
    Answered,
    BrokenOff,
    BrokenOffReason,
    Claimed,
    NotSent,
    NotSentReason,
)
from tests.connectors.calls import KEY, SAGA
from tests.connectors.conformance import (
    WAIT_SECONDS,
    Answer,
    Deed,
    Kind,
    Meaning,
    Seen,
    Tool,
    meaning_of,
)
from tests.connectors.conftest import MakeConnector
from tests.connectors.http_tool import http_tool
from tests.connectors.python_tool import python_tool

VALUES = [
    {},
    [],
    "",
    "Zoë \x00 \u2028 😀",
    0,
    -(2**63),
    2**64 - 1,
    0.1,
    True,
    None,
    {"id": "F1", "legs": [{"from": "A", "price": 1.5, "is_direct": False}, None]},
]


@pytest.fixture(params=["http", "python", "python async"])
async def tool(
    request: pytest.FixtureRequest, make_connector: MakeConnector
) -> AsyncIterator[Tool]:
    """A tool behind each connector there is."""
    made: Tool
    if request.param == "http":
        async with http_tool(make_connector()) as made:
            yield made
    else:
        async with python_tool(is_async=request.param == "python async") as made:
            yield made


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_answer_is_done(tool: Tool, value: JsonValue) -> None:
    """What a tool answers is what is seen, with its type and size."""
    tool.behaviour = Answer(value=value)

    observed = await tool.connector.attempt(tool.make_call())

    assert isinstance(observed, Answered)
    assert meaning_of(observed) == Meaning(kind=Kind.DONE)
    assert observed.body == value
    assert type(observed.body) is type(value)
    assert observed.body_bytes > 0
    assert len(tool.seen) == 1


async def test_silent_answer_is_null(tool: Tool) -> None:
    """A tool that has done it and says nothing more has the output null."""
    tool.behaviour = Deed.SAY_NOTHING

    observed = await tool.connector.attempt(tool.make_call())

    assert isinstance(observed, Answered)
    assert meaning_of(observed) == Meaning(kind=Kind.DONE)
    assert observed.body is None
    assert len(tool.seen) == 1


@pytest.mark.parametrize(
    ("deed", "meaning"),
    [
        (Deed.REFUSE, Meaning(kind=Kind.NONE_FOR_GOOD)),
        (Deed.ASK_TO_RETRY, Meaning(kind=Kind.NONE_FOR_NOW, wait_seconds=WAIT_SECONDS)),
        (Deed.SAY_UNKNOWN, Meaning(kind=Kind.UNKNOWN)),
        (Deed.BREAK_OFF, Meaning(kind=Kind.UNKNOWN)),
        (Deed.SAY_TOO_MUCH, Meaning(kind=Kind.UNKNOWN)),
    ],
)
async def test_deed_has_its_meaning(tool: Tool, deed: Deed, meaning: Meaning) -> None:
    """A refusal, a plea for time and a doubt are told apart, and none is tried again."""
    tool.behaviour = deed

    observed = await tool.connector.attempt(tool.make_call())

    assert meaning_of(observed) == meaning
    assert len(tool.seen) == 1


@pytest.mark.parametrize("deed", [Deed.REFUSE, Deed.ASK_TO_RETRY, Deed.SAY_UNKNOWN])
async def test_words_of_the_tool_are_kept(tool: Tool, deed: Deed) -> None:
    """What a tool says on refusing is there for a person to read."""
    tool.behaviour = deed

    observed = await tool.connector.attempt(tool.make_call())

    assert isinstance(observed, Answered | Claimed)
    words = observed.body if isinstance(observed, Answered) else observed.message
    assert words in {"no", "busy", "?"}


async def test_answer_that_is_too_long_is_not_kept(tool: Tool) -> None:
    """Of a success beyond the limit little is stored, and it is marked."""
    tool.behaviour = Deed.SAY_TOO_MUCH

    observed = await tool.connector.attempt(tool.make_call())

    assert isinstance(observed, Answered)
    assert observed.status == 200
    assert not observed.readable
    assert len(str(observed.body)) <= 500
    assert "more than" in str(observed.body)


async def test_slow_tool_times_out(tool: Tool) -> None:
    """A tool that was called and does not answer in time leaves a doubt."""
    tool.behaviour = Deed.HANG

    observed = await tool.connector.attempt(tool.make_call(timeout_seconds=0.2))

    assert isinstance(observed, BrokenOff)
    assert observed.reason is BrokenOffReason.TIMED_OUT
    assert len(tool.seen) == 1


async def test_nobody_is_there(tool: Tool) -> None:
    """A call of a tool that is not there was surely not sent."""
    observed = await tool.connector.attempt(tool.make_call_of_nobody())

    assert isinstance(observed, NotSent)
    assert observed.reason is not NotSentReason.EXPIRED
    assert tool.seen == []


async def test_call_whose_time_has_passed(tool: Tool) -> None:
    """After its time a call is not sent."""
    observed = await tool.connector.attempt(tool.make_call(expired=lambda: True))

    assert isinstance(observed, NotSent)
    assert observed.reason is NotSentReason.EXPIRED
    assert tool.seen == []


async def test_question_whether_it_is_too_late_comes_before_the_call(tool: Tool) -> None:
    """Whether it is too late is asked before a tool is called, and not after."""
    seen_when_asked: list[int] = []

    def expired() -> bool:
        seen_when_asked.append(len(tool.seen))
        return False

    observed = await tool.connector.attempt(tool.make_call(expired=expired))

    assert isinstance(observed, Answered)
    assert set(seen_when_asked) == {0}


async def test_tool_is_told_who_calls(tool: Tool) -> None:
    """A tool learns saga, step, direction, attempt and key, its callback, and its arguments."""
    arguments: dict[str, JsonValue] = {"city": "Zürich", "seats": [1, 2], "window": None}

    await tool.connector.attempt(
        tool.make_call(attempt=3, arguments=arguments, callback_url="https://amends.example/cb/x")
    )

    assert tool.seen == [
        Seen(
            saga_id=str(SAGA),
            step="flight",
            call="action",
            attempt=3,
            key=str(KEY),
            callback_url="https://amends.example/cb/x",
            arguments=arguments,
        )
    ]


async def test_attempts_differ_in_their_number_alone(tool: Tool) -> None:
    """A second attempt carries the same key and arguments, and no callback unless there is one."""
    for attempt in (1, 2):
        await tool.connector.attempt(tool.make_call(attempt=attempt, arguments={"a": 1}))

    first, second = tool.seen
    assert (first.attempt, second.attempt) == (1, 2)
    assert (first.key, first.arguments) == (second.key, second.arguments)
    assert first.callback_url is None


async def test_cancellation_ends_an_attempt(tool: Tool) -> None:
    """An attempt that is cancelled while the tool works raises, and the next one goes through."""
    tool.behaviour = Deed.HANG
    async with asyncio.TaskGroup() as group:
        attempt = group.create_task(tool.connector.attempt(tool.make_call()))
        await tool.arrived.acquire()
        attempt.cancel()
    tool.behaviour = Deed.SAY_NOTHING

    after = await tool.connector.attempt(tool.make_call(attempt=2))

    assert attempt.cancelled()
    assert meaning_of(after) == Meaning(kind=Kind.DONE)
    assert [seen.attempt for seen in tool.seen] == [1, 2]


async def test_calls_do_not_wait_for_each_other(tool: Tool) -> None:
    """While one call of a tool hangs, another is answered."""
    tool.behaviour = Deed.HANG
    async with asyncio.TaskGroup() as group:
        hanging = group.create_task(tool.connector.attempt(tool.make_call()))
        await tool.arrived.acquire()
        tool.behaviour = Answer(value=2)
        quick = await tool.connector.attempt(tool.make_call(attempt=2))
        hanging.cancel()

    assert isinstance(quick, Answered)
    assert quick.body == 2


async def test_close_is_done_twice_or_without_use(tool: Tool) -> None:
    """Closing needs no use before it, and may be repeated."""
    await tool.connector.close()
    await tool.connector.close()
