"""Functions are authors' code: they take and raise what they like."""

import asyncio
import contextvars
from typing import override

import pytest
from structlog.testing import capture_logs

from app.core.observation import (
    Answered,
    BrokenOff,
    BrokenOffReason,
    Claim,
    Claimed,
    NotSent,
    NotSentReason,
    Observation,
)
from app.functions import Call, Refused, Retry, Unknown
from tests.connectors.calls import KEY, SAGA, a_function_call
from tests.connectors.python_tool import MakePython

WHO = contextvars.ContextVar("WHO", default="nobody")


class Wordless(Exception):
    """Cannot say what it is."""

    @override
    def __str__(self) -> str:
        raise RuntimeError("no words")


RAISED = [
    ValueError("no such seat"),
    TimeoutError(),
    ConnectionResetError(104, "reset by peer"),
    ExceptionGroup("both", [Refused("a"), Retry("b")]),
    SystemExit(3),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    GeneratorExit(),
    StopIteration(1),
    StopAsyncIteration(),
    RecursionError("maximum recursion depth exceeded"),
    MemoryError(),
    Wordless(),
]


async def attempt_raising(
    make_python: MakePython, error: BaseException, *, is_async: bool
) -> Observation:
    """What is seen of a function that raises ``error``."""

    def act() -> None:
        raise error

    async def act_in_loop() -> None:
        raise error

    implementation = act_in_loop if is_async else act
    return await make_python(implementation).attempt(
        a_function_call(f"tool.{implementation.__name__}")
    )


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
async def test_error_leaves_a_doubt(
    make_python: MakePython, error: BaseException, *, is_async: bool
) -> None:
    """Whatever a function raises, even what would end a process, it may have done its deed."""
    with capture_logs() as logs:
        observed = await attempt_raising(make_python, error, is_async=is_async)

    assert isinstance(observed, BrokenOff)
    assert observed.reason is BrokenOffReason.RAISED
    assert observed.message
    assert [line["event"] for line in logs] == ["function_raised"]
    assert logs[0]["exc_info"].__traceback__ is not None
    assert logs[0]["saga_id"] == str(SAGA)


@pytest.mark.parametrize("is_async", [False, True])
async def test_infinite_recursion_leaves_a_doubt(
    make_python: MakePython, *, is_async: bool
) -> None:
    """A function that calls itself for ever fails alone."""

    def act() -> object:
        return act()

    async def act_in_loop() -> object:
        return await act_in_loop()

    implementation = act_in_loop if is_async else act
    connector = make_python(implementation)

    with capture_logs():
        observed = await connector.attempt(a_function_call(f"tool.{implementation.__name__}"))

    assert isinstance(observed, BrokenOff)
    assert observed.message.startswith("RecursionError: ")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("error", "claimed"),
    [
        (Refused("no seat"), Claimed(claim=Claim.REFUSED, message="no seat")),
        (Retry("busy"), Claimed(claim=Claim.RETRY, message="busy")),
        (
            Retry("busy", after_seconds=0),
            Claimed(claim=Claim.RETRY, message="busy", retry_after_seconds=0.0),
        ),
        (
            Retry("busy", 1.5),
            Claimed(claim=Claim.RETRY, message="busy", retry_after_seconds=1.5),
        ),
        (Retry("busy", float("nan")), Claimed(claim=Claim.RETRY, message="busy")),
        (Retry("busy", -1), Claimed(claim=Claim.RETRY, message="busy")),
        (Retry("busy", "soon"), Claimed(claim=Claim.RETRY, message="busy")),  # type: ignore[arg-type]
        (Unknown("?"), Claimed(claim=Claim.UNKNOWN, message="?")),
        (Refused("\ud800" + "x" * 600), Claimed(claim=Claim.REFUSED, message="?" + "x" * 499)),
    ],
    ids=repr,
)
async def test_claim_is_passed_on(
    make_python: MakePython, error: Exception, claimed: Claimed, *, is_async: bool
) -> None:
    """What a function says of its attempt is passed on, without a word in the log."""
    with capture_logs() as logs:
        observed = await attempt_raising(make_python, error, is_async=is_async)

    assert observed == claimed
    assert logs == []


async def test_message_of_an_error_is_cut(make_python: MakePython) -> None:
    """An error may be long, and say what cannot be stored."""
    error = ValueError("\udfff" + "x" * 10_000)

    with capture_logs():
        observed = await attempt_raising(make_python, error, is_async=False)

    assert isinstance(observed, BrokenOff)
    assert observed.message == ("ValueError: ?" + "x" * 500)[:500]


async def test_a_function_that_is_not_here_may_be_elsewhere(make_python: MakePython) -> None:
    """A replica that lacks a function cannot reach it: while releases change, another one can."""
    observed = await make_python(_act).attempt(a_function_call("tool.nobody", arguments="{}"))

    assert isinstance(observed, NotSent)
    assert observed.reason is NotSentReason.UNREACHABLE
    assert "there is no function" in observed.message


def _act() -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        ("tool.act", "{}", "'city' is missing"),
        ("tool.act", '{"city": 1, "x": 2}', "'x' is not a parameter"),
        ("tool.act", '{"city": 1, "key": 2}', "'key' is given by the service"),
        ("tool.act", "[]", "not a JSON object"),
        ("tool.act", "{", "not JSON"),
        ("tool.act", '{"city": "\ud800"}', "not JSON"),
        ("tool.act", '{"' + "x" * 1000 + '": 1}', "is not a parameter"),
    ],
)
async def test_call_that_does_not_fit_is_not_made(
    make_python: MakePython, function: str, arguments: str, words: str
) -> None:
    """A call that no retry could make fit is refused before it is made."""
    called: list[object] = []

    def act(city: object, key: str) -> None:
        called.append(city)

    observed = await make_python(act).attempt(a_function_call(function, arguments=arguments))

    assert isinstance(observed, NotSent)
    assert observed.reason is NotSentReason.FORBIDDEN
    assert words in observed.message or len(observed.message) == 500
    assert called == []


async def test_function_gets_what_it_asks_for(make_python: MakePython) -> None:
    """The key and the attempt are given to parameters of these names, and to no others."""
    given: list[object] = []

    def named(city: str, *, key: str, call: Call) -> None:
        given.append((city, key, call))

    def silent(city: str) -> None:
        given.append(city)

    def anything(**rest: object) -> None:
        given.append(rest)

    connector = make_python(named, silent, anything)
    for name in ("named", "silent", "anything"):
        call = a_function_call(f"tool.{name}", arguments='{"city": "Rome"}', attempt=2)
        await connector.attempt(call)

    told = Call(
        saga_id=str(SAGA),
        step="flight",
        call="action",
        attempt=2,
        key=str(KEY),
        timeout_seconds=30.0,
    )
    assert given == [("Rome", str(KEY), told), "Rome", {"city": "Rome"}]


async def test_arguments_are_fresh_at_each_attempt(make_python: MakePython) -> None:
    """A function that changes its arguments changes them for itself alone."""
    lengths: list[int] = []

    def act(seats: list[int]) -> None:
        lengths.append(len(seats))
        seats.append(0)

    connector = make_python(act)
    call = a_function_call("tool.act", arguments='{"seats": [1]}')
    for _ in range(2):
        await connector.attempt(call)

    assert lengths == [1, 1]


async def test_coroutine_of_a_plain_function_is_not_run(make_python: MakePython) -> None:
    """A ``def`` that returns a coroutine has not done it, and nobody is warned of a lost one."""

    async def deed() -> None:
        raise AssertionError

    def act() -> object:
        return deed()

    observed = await make_python(act).attempt(a_function_call("tool.act"))

    assert isinstance(observed, Answered)
    assert not observed.readable
    assert "coroutine" in str(observed.body)


@pytest.mark.parametrize("name", ["act", "act_in_loop"])
async def test_context_is_the_callers(make_python: MakePython, name: str) -> None:
    """Context variables reach the function, and what it sets does not come back."""

    def act() -> str:
        who = WHO.get()
        WHO.set("the function")
        return who

    async def act_in_loop() -> str:
        return act()

    token = WHO.set("the caller")
    observed = await make_python(act, act_in_loop).attempt(a_function_call(f"tool.{name}"))
    after = WHO.get()
    WHO.reset(token)

    assert isinstance(observed, Answered)
    assert observed.body == "the caller"
    assert after == "the caller"


@pytest.mark.parametrize("name", ["act", "act_in_loop"])
async def test_own_fault_is_raised(make_python: MakePython, name: str) -> None:
    """If asking whether it is too late fails, that is a bug of ours, and is raised as one."""

    def act() -> None:
        raise AssertionError

    async def act_in_loop() -> None:
        raise AssertionError

    def expired() -> bool:
        raise LookupError("no clock")

    connector = make_python(act, act_in_loop)

    with pytest.raises(LookupError, match="no clock"):
        await connector.attempt(a_function_call(f"tool.{name}", expired=expired))
