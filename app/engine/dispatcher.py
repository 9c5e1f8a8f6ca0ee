"""The dispatcher: carries out attempts whose intents are committed, and reports what was seen."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog

from app.clock import Clock
from app.connectors import Connector, OutgoingCall
from app.core.callbacks import token_of
from app.core.definition import Definition
from app.core.events import AttemptObserved
from app.core.identity import Direction, SagaId, StepId
from app.core.observation import (
    BrokenOff,
    BrokenOffReason,
    NotSent,
    NotSentReason,
    Observation,
)
from app.core.saga import CallState, Facts, Saga
from app.core.secrets import MissingSecret, reveal

log = structlog.get_logger(__name__)

type _Name = tuple[SagaId, StepId, Direction, int]
"""Names an attempt: saga, step, direction and number."""


class Dispatcher:
    """Runs one task for every attempt that is out."""

    def __init__(
        self,
        *,
        connector: Connector,
        clock: Clock,
        callbacks_url: str,
        secrets: Mapping[str, str],
        report: Callable[[SagaId, AttemptObserved], Awaitable[bool]],
    ) -> None:
        """``report`` returns whether what was observed is stored."""
        self._connector = connector
        self._clock = clock
        self._callbacks_url = callbacks_url
        self._secrets = secrets
        self._report = report
        self._out: dict[_Name, asyncio.Task[None]] = {}
        self._spent: set[_Name] = set()
        """Attempts that were carried out, and whose observation is not stored (yet)."""
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def in_flight(self) -> int:
        """How many attempts are out."""
        return len(self._out)

    def dispatch(self, saga: Saga, call: CallState, definition: Definition) -> None:
        """Send an open attempt, unless it is out already."""
        assert call.open is not None, call
        name = (saga.id, call.step, call.direction, call.open.number)
        if name in self._out:
            return
        self._quiet.clear()
        work = self._run(name, saga.facts, call, definition)
        task = asyncio.create_task(work, name="attempt")  # noqa: TID251 - owned: stop() awaits it
        self._out[name] = task
        task.add_done_callback(lambda _: self._done(name))

    async def wait_quiet(self) -> None:
        """Wait until nothing is out."""
        await self._quiet.wait()

    async def stop(self) -> None:
        """Break off what is still out; nobody reports it, and the heir finds it unknown."""
        tasks = list(self._out.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, name: _Name) -> None:
        del self._out[name]
        if not self._out:
            self._quiet.set()

    async def _run(
        self, name: _Name, facts: Facts, call: CallState, definition: Definition
    ) -> None:
        saga_id, step, direction, number = name
        if name in self._spent:
            # It was sent, and its answer could not be stored: never again, and nobody knows.
            message = "the attempt was made, and its answer could not be stored"
            observation: Observation = BrokenOff(reason=BrokenOffReason.INTERNAL, message=message)
        else:
            observation = await self._attempt(facts, call, definition)
        self._spent.add(name)
        fact = AttemptObserved(
            step=step, direction=direction, attempt=number, observation=observation
        )
        if await self._report(saga_id, fact):
            self._spent.discard(name)

    async def _attempt(self, facts: Facts, call: CallState, definition: Definition) -> Observation:
        assert call.open is not None, call
        assert call.request is not None, call
        template = definition.step(call.step).call(call.direction)
        send_by = call.open.send_by
        try:
            request = reveal(call.request, self._secrets, key_seed=facts.key_seed)
        except MissingSecret as error:
            # Another replica may have it, or this one after its next start.
            return NotSent(reason=NotSentReason.UNREACHABLE, message=str(error))
        outgoing = OutgoingCall(
            saga_id=facts.id,
            step=call.step,
            call="verify" if call.direction.subject else call.direction.value,
            attempt=call.open.number,
            key=call.key,
            request=request,
            timeout=template.timeout,
            expired=lambda: self._clock.now() >= send_by,
            callback_url=(
                None if template.callback is None else self._callbacks_url + token_of(facts, call)
            ),
        )
        try:
            return await self._connector.attempt(outgoing)
        except Exception:
            log.exception(
                "attempt_crashed",
                saga_id=str(facts.id),
                step=call.step,
                call=outgoing.call,
                attempt=outgoing.attempt,
            )
            message = "our own code failed while the attempt was out"
            return BrokenOff(reason=BrokenOffReason.INTERNAL, message=message)
