"""Functions that take too long: in threads and tasks, what hangs is left behind, and told of."""

import asyncio
import datetime as dt
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import override

import pytest
from structlog.testing import capture_logs

from app.connectors.threads import Threads
from app.core.observation import Answered, BrokenOff, BrokenOffReason, NotSent, NotSentReason
from app.functions import Refused
from tests.connectors.calls import a_function_call, a_turn
from tests.connectors.python_tool import MakePython

ROOT = Path(__file__).resolve().parents[2]
NO_TIME = dt.timedelta(0)


async def test_threads_are_reused(make_python: MakePython) -> None:
    """Calls one after the other share a thread, and so what it holds open."""
    idents: list[int] = []

    def act() -> None:
        idents.append(threading.get_ident())

    connector = make_python(act)
    for _ in range(10):
        await connector.attempt(a_function_call())

    assert len(idents) == 10
    assert len(set(idents)) == 1
    assert idents[0] != threading.get_ident()


async def test_too_late_is_asked_where_the_function_is_called(make_python: MakePython) -> None:
    """Whether it is too late is asked in the function's thread, with nothing in between."""
    idents: list[int] = []

    def act() -> None:
        idents.append(threading.get_ident())

    def expired() -> bool:
        idents.append(threading.get_ident())
        return False

    await make_python(act).attempt(a_function_call(expired=expired))

    assert len(idents) == 2
    assert len(set(idents)) == 1


async def test_hanging_function_uses_up_its_own_threads(
    make_python: MakePython, let_go: threading.Event
) -> None:
    """A function whose threads all hang is not called; others are, and it is once one has ended."""
    calls: list[str] = []
    first_is_over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang() -> None:
        calls.append("hang")
        let_go.wait()
        loop.call_soon_threadsafe(first_is_over.set)

    def work() -> None:
        calls.append("work")

    connector = make_python(hang, work, threads_max=2, threads_per_function_max=1)
    with capture_logs() as logs:
        first = await connector.attempt(a_function_call("tool.hang", timeout_seconds=0.1))
        second = await connector.attempt(a_function_call("tool.hang", timeout_seconds=0))
        other = await connector.attempt(a_function_call("tool.work"))
        let_go.set()
        await first_is_over.wait()
        third = await connector.attempt(a_function_call("tool.hang"))

    assert isinstance(first, BrokenOff)
    assert first.reason is BrokenOffReason.TIMED_OUT
    assert isinstance(second, NotSent)
    assert second.reason is NotSentReason.EXPIRED
    assert isinstance(other, Answered)
    assert isinstance(third, Answered)
    assert calls == ["hang", "work", "hang"]
    assert [line["event"] for line in logs] == ["function_left_running", "function_ended_late"]


async def test_waiting_for_a_thread_ends_with_the_time_to_send(
    make_python: MakePython, let_go: threading.Event
) -> None:
    """While no thread is free it is asked whether it is too late."""

    def hang() -> None:
        let_go.wait()

    connector = make_python(hang, threads_max=1)
    with capture_logs():
        await connector.attempt(a_function_call("tool.hang", timeout_seconds=0.1))
        observed = await connector.attempt(a_function_call("tool.hang", expired=lambda: True))

    assert isinstance(observed, NotSent)
    assert observed.reason is NotSentReason.EXPIRED


class LateThreads(Threads):
    """Threads that a busy system does not come to."""

    def __init__(self) -> None:
        super().__init__("late")
        self.jobs: list[Callable[[], object]] = []

    @override
    def run[T](self, job: Callable[[], T], *, ended: Callable[[T | BaseException], None]) -> None:
        self.jobs.append(lambda: ended(job()))


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_function_is_not_called_after_its_attempt(
    make_python: MakePython, *, is_cancelled: bool
) -> None:
    """If its thread comes to it only when the attempt is over, the function is not called."""
    called: list[int] = []

    def act() -> None:
        called.append(1)

    connector = make_python(act)
    connector._threads = threads = LateThreads()
    with capture_logs() as logs:
        async with asyncio.TaskGroup() as group:
            call = a_function_call(timeout_seconds=30 if is_cancelled else 0.05)
            attempt = group.create_task(connector.attempt(call))
            await a_turn()
            if is_cancelled:
                attempt.cancel()
        threads.jobs[0]()

    assert called == []
    assert logs == []
    assert connector._for_threads._all.is_unused
    if is_cancelled:
        assert attempt.cancelled()
    else:
        observed = attempt.result()
        assert isinstance(observed, NotSent)
        assert observed.reason is NotSentReason.EXPIRED


async def test_system_without_threads(
    make_python: MakePython, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no thread can be started nothing was called, and the next attempt may be luckier."""

    def act() -> None: ...

    def fail(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    connector = make_python(act, threads_max=1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        first = await connector.attempt(a_function_call())
    second = await connector.attempt(a_function_call())

    assert isinstance(first, NotSent)
    assert first.reason is NotSentReason.UNREACHABLE
    assert isinstance(second, Answered)


async def test_slow_async_function_cleans_up(make_python: MakePython) -> None:
    """A function that is out of time is cancelled, and done with before its attempt ends."""
    did: list[str] = []

    async def act() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await a_turn()
            did.append("cleaned up")

    observed = await make_python(act).attempt(a_function_call(timeout_seconds=0.05))

    assert isinstance(observed, BrokenOff)
    assert observed.reason is BrokenOffReason.TIMED_OUT
    assert did == ["cleaned up"]


@pytest.mark.parametrize("says", ["done", "refused", "error"])
async def test_what_is_said_after_cancellation_is_not_believed(
    make_python: MakePython, says: str
) -> None:
    """A function stopped in the middle cannot say that it is done, or that it did nothing."""

    async def act() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if says == "refused":
                raise Refused("stopped") from None
            if says == "error":
                raise ValueError("stopped") from None
        return "done"

    with capture_logs():
        observed = await make_python(act).attempt(a_function_call(timeout_seconds=0.05))

    assert isinstance(observed, BrokenOff)
    assert observed.reason is BrokenOffReason.TIMED_OUT


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_deaf_function_does_not_hold_its_attempt(
    make_python: MakePython, *, is_cancelled: bool
) -> None:
    """A function that ignores being cancelled is left alone, told of, and ended by ``close``."""
    began, cancellations = asyncio.Event(), 0

    async def act() -> None:
        nonlocal cancellations
        began.set()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancellations += 1

    connector = make_python(act, cancel_wait=NO_TIME, tasks_max=1)
    with capture_logs() as logs:
        async with asyncio.TaskGroup() as group:
            call = a_function_call(timeout_seconds=30 if is_cancelled else 0.05)
            attempt = group.create_task(connector.attempt(call))
            await began.wait()
            if is_cancelled:
                attempt.cancel()
        (task,) = connector._stuck_tasks
        place_is_held = not connector._for_tasks._all.is_unused
        await connector.close()
        await asyncio.wait((task,))

    assert attempt.cancelled() == is_cancelled
    assert cancellations == 1
    assert place_is_held
    assert [line["event"] for line in logs] == [
        "function_ignores_cancellation",
        "functions_left_running",
        "function_ended_late",
    ]
    assert logs[1]["functions"] == {"tool.act": 1}
    assert connector._for_tasks._all.is_unused


async def test_second_cancellation_does_not_wait(make_python: MakePython) -> None:
    """An attempt that waits for a deaf function to end is cancelled at once the second time."""
    began, heard, let_go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def act() -> None:
        began.set()
        try:
            await let_go.wait()
        except asyncio.CancelledError:
            heard.set()
            await let_go.wait()

    connector = make_python(act, cancel_wait=dt.timedelta(hours=1))
    with capture_logs() as logs:
        async with asyncio.TaskGroup() as group:
            attempt = group.create_task(connector.attempt(a_function_call()))
            await began.wait()
            attempt.cancel()
            await heard.wait()
            attempt.cancel()
        (task,) = connector._stuck_tasks
        let_go.set()
        await asyncio.wait((task,))

    assert attempt.cancelled()
    assert [line["event"] for line in logs] == [
        "function_ignores_cancellation",
        "function_ended_late",
    ]


async def test_close_tells_of_threads(make_python: MakePython, let_go: threading.Event) -> None:
    """Closing waits for no thread, and says which functions still run."""

    def hang() -> None:
        let_go.wait()

    connector = make_python(hang)
    with capture_logs() as logs:
        for _ in range(2):
            await connector.attempt(a_function_call("tool.hang", timeout_seconds=0.05))
        await connector.close()

    assert logs[-1]["event"] == "functions_left_running"
    assert logs[-1]["functions"] == {"tool.hang": 2}


def test_process_ends_whatever_hangs(tmp_path: Path) -> None:
    """Neither a thread that hangs nor a deaf coroutine keeps the process from its end."""
    (tmp_path / "tool.py").write_text(
        dedent("""
            import asyncio, threading

            def hang():
                threading.Event().wait()

            async def be_deaf():
                while True:
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        pass
        """)
    )
    script = dedent(f"""
        import asyncio, datetime as dt, pathlib
        from app.connectors import PythonConnector, load_functions
        from tests.connectors.calls import a_function_call

        async def main():
            functions = load_functions(pathlib.Path({str(tmp_path)!r}))
            connector = PythonConnector(functions, cancel_wait=dt.timedelta(0))
            for name in ("tool.hang", "tool.be_deaf"):
                call = a_function_call(name, timeout_seconds=0.1)
                print(name, (await connector.attempt(call)).reason)
            await connector.close()

        asyncio.run(main())
        print("over")
    """)

    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )

    assert ended.returncode == 0, ended.stderr
    assert "tool.hang timed_out\n" in ended.stdout
    assert "tool.be_deaf timed_out\n" in ended.stdout
    assert ended.stdout.endswith("over\n")
    assert ended.stderr == ""
