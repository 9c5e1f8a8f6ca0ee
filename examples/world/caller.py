"""Calling back: each job is led through its plan, report by report.

What is to be told is in the ledger, so that a world that is started again tells the rest: a report
whose answer was not recorded is sent again with the same bytes, its delay and hold begin anew. A
report is sent again, with pauses, while nobody answers or the answer is a 429 or 5xx, up to its
number of attempts. What was sent to a wrong place on purpose is sent once.
"""

import asyncio
import ipaddress
import json
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from examples.world import jobs
from examples.world.decisions import Decision
from examples.world.faults import Hold, fault_in
from examples.world.holds import Holds
from examples.world.jobs import Job
from examples.world.keys import act_later
from examples.world.plans import Report
from examples.world.records import JsonValue, Ledger, Saying, Target
from examples.world.routes import route
from examples.world.storage import Storage
from examples.world.switches import Switches

DEAD_URL: Final = "http://127.0.0.1:1/nobody-listens-here"
"""Port 1 is reserved, and nobody has been seen to use it: https://www.rfc-editor.org/rfc/rfc1078."""
_TIMEOUT: Final = aiohttp.ClientTimeout(total=10)
_PAUSE_SECONDS: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 2.0


def is_loopback(url: str) -> bool:
    """Tell whether a URL leads to this machine, as far as its name says."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
    return is_local and parts.scheme in {"http", "https"}


class Caller:
    """Tells what there is to be told. ``stop`` ends it; the rest is told after the next start."""

    def __init__(
        self,
        *,
        storage: Storage,
        switches: Switches,
        holds: Holds,
        session: aiohttp.ClientSession,
        calls_anywhere: bool,
    ) -> None:
        """Take what the tool works on, too."""
        self._storage = storage
        self._switches = switches
        self._holds = holds
        self._session = session
        self._calls_anywhere = calls_anywhere
        self._tasks: set[asyncio.Task[None]] = set()
        self._answered = asyncio.Condition()

    def may_call(self, url: str) -> bool:
        """Tell whether a URL may be called back."""
        return self._calls_anywhere or is_loopback(url)

    async def resume(self) -> None:
        """Go on with what a world before this one left open."""
        for request_seq in await self._storage.commit(jobs.list_open):
            self.start(request_seq)

    def start(self, request_seq: int) -> None:
        """Tell all there is to tell of a request, from now on."""
        self._own(self._tell(request_seq))

    async def tell_early(self, request_seq: int) -> None:
        """Tell what is to be told before the request is answered."""
        await self._tell(request_seq, early_only=True)

    async def stop(self) -> None:
        """Break off whatever is being told.

        Raises:
            Exception: that a report ended with; expected failures are in the ledger instead.
        """
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended

    async def wait_answered(
        self, *, saga: str | None, key: str | None, count: int, wait_seconds: float
    ) -> Ledger:
        """Wait until so many callbacks are answered, or not; return the ledger as it is then.

        A callback that found nobody counts as well: it is over.
        """
        count_answered = partial(jobs.count_answered, saga=saga, key=key)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds), self._answered:
                while await self._storage.commit(count_answered) < count:
                    await self._answered.wait()
        return await self._storage.ledger(saga=saga)

    def _own(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name="callback")  # noqa: TID251 - owned: stop() awaits it
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        # One that failed is kept for `stop`.
        if task.cancelled() or task.exception() is None:
            self._tasks.discard(task)

    async def _tell(self, request_seq: int, *, early_only: bool = False) -> None:
        job = await self._storage.commit(partial(jobs.fetch, request_seq=request_seq))
        plan = fault_in(job.request.fault).plan
        for number, report in enumerate(plan.reports):
            if number < job.reported:
                continue
            if early_only and not report.before:
                return
            await asyncio.sleep(report.delay)
            if report.hold is not None:
                await self._holds.hold(Hold(where="callback", name=report.hold), job.request)
            decision = None if report.say == "in_progress" else await self._act(job)
            await self._send(job, number, report, decision)
        if not early_only:
            await self._act(job)
            await self._storage.commit(partial(jobs.finish, request_seq=request_seq))

    async def _act(self, job: Job) -> Decision:
        mode = self._switches.mode_of(route(job.request.method, job.request.path).resource)
        request_seq = job.request.seq
        # Read anew: it may have acted since.
        return await self._storage.commit(
            lambda connection: act_later(connection, jobs.fetch(connection, request_seq), mode)
        )

    async def _send(self, job: Job, number: int, report: Report, decision: Decision | None) -> None:
        says, body = _word(report, decision)
        url = _address(job.url, report.to)
        attempts = report.attempts if report.to == "given" else 1
        for attempt in range(1, attempts + 1):
            seq = await self._storage.commit(
                partial(
                    jobs.begin_callback,
                    job=job,
                    report=number,
                    says=says,
                    sent_to=report.to,
                    is_changed=bool(report.changes),
                    url=url,
                    body=body,
                )
            )
            status, error = await self._post(url, body)
            is_settled = attempt == attempts or not _is_worth_another(status)
            await self._storage.commit(
                partial(
                    jobs.end_callback, seq=seq, status=status, error=error, is_settled=is_settled
                )
            )
            async with self._answered:
                self._answered.notify_all()
            if is_settled:
                return
            await asyncio.sleep(min(_PAUSE_SECONDS * 2 ** min(attempt, 10), _PAUSE_SECONDS_MAX))

    async def _post(self, url: str, body: str) -> tuple[int | None, str | None]:
        try:
            async with self._session.post(
                url,
                data=body.encode(),
                headers={"Content-Type": "application/json"},
                allow_redirects=False,
                timeout=_TIMEOUT,
            ) as answer:
                await answer.read()
                return answer.status, None
        except (aiohttp.ClientError, ValueError, OSError) as error:
            return None, f"{type(error).__name__}: {error}"


def _word(report: Report, decision: Decision | None) -> tuple[Saying, str]:
    """Say what a report says, and write its body: the same each time."""
    if decision is None:
        body: dict[str, JsonValue] = {"outcome": "in_progress", "progress": {"status": "working"}}
        return "in_progress", json.dumps(body | report.changes)
    said: dict[str, JsonValue] = json.loads(decision.body)
    is_done = decision.status < HTTPStatus.BAD_REQUEST
    says: Saying = "succeeded" if is_done else "failed"
    if report.say in {"succeeded", "failed"}:
        says = "succeeded" if report.say == "succeeded" else "failed"
    if says == "succeeded":
        body = {"outcome": says, "output": said}
    else:
        why = "failed_ordered: a switch ordered this report"
        body = {"outcome": says, "error": why if is_done else f"{said['error']}: {said['message']}"}
    return says, json.dumps(body | report.changes)


def _address(url: str, to: Target) -> str:
    match to:
        case "given":
            return url
        case "dead":
            return DEAD_URL
        case "forged":
            base, _, token = url.rpartition("/")
            # One character in the middle: the last one of a base64 text may say nothing.
            middle = len(token) // 2
            forged = "1" if token[middle : middle + 1] == "0" else "0"
            return f"{base}/{token[:middle]}{forged}{token[middle + 1 :]}"


def _is_worth_another(status: int | None) -> bool:
    return (
        status is None
        or status == HTTPStatus.TOO_MANY_REQUESTS
        or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )
