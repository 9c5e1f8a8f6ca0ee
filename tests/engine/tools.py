"""The world's side: a connector whose tools answer as the test says, and that can be awaited."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from app.connectors import OutgoingCall
from app.core.identity import SagaId
from app.core.observation import NotSent, NotSentReason, Observation
from tests.store.place import answered
from tests.waiting import wait_until

type Answer = Observation | Exception | Callable[[OutgoingCall], Awaitable[Observation]]


@dataclass(slots=True)
class Gate:
    """Holds attempts until it is opened."""

    is_open: asyncio.Event = field(default_factory=asyncio.Event)

    def open(self) -> None:
        """Let everything through, now and later."""
        self.is_open.set()


class Tools:
    """A connector.

    Attributes:
        calls: what was asked for, in its order.
        sent: those of which a first byte left: the intent had not expired.
        repeats: attempts that were sent before: each may be made once.
        overlaps: attempts of a call that began while another of the same call was out.
        broken_off: attempts that were cancelled.
        late: attempts that were asked for after the end.
        is_closed: nothing may be asked any more.
    """

    def __init__(self) -> None:
        self.calls: list[OutgoingCall] = []
        self.sent: list[OutgoingCall] = []
        self.repeats: list[OutgoingCall] = []
        self.overlaps: list[OutgoingCall] = []
        self.broken_off: list[OutgoingCall] = []
        self.late: list[OutgoingCall] = []
        self.is_closed = False
        self._made: set[tuple[SagaId, str, str, int]] = set()
        self._out: dict[tuple[SagaId, str, str], int] = {}
        self._answers: dict[tuple[str, str], list[Answer]] = {}
        self._gates: dict[tuple[str, str], Gate] = {}

    def answer(self, step: str, *answers: Answer, call: str = "action") -> None:
        """The next answers of a step's tool; the last one stays."""
        self._answers[step, call] = list(answers)

    def hold(self, step: str, *, call: str = "action") -> Gate:
        """Hold a step's attempts until the gate is opened; then they are sent and answered."""
        gate = self._gates[step, call] = Gate()
        return gate

    async def attempt(self, call: OutgoingCall) -> Observation:
        """Carry out one attempt, as a connector does."""
        if self.is_closed:
            self.late.append(call)
            raise RuntimeError("the connector is closed")
        name = (call.saga_id, call.step, call.call)
        self.calls.append(call)
        if self._out.get(name):
            self.overlaps.append(call)
        self._out[name] = self._out.get(name, 0) + 1
        try:
            return await self._carry_out(call)
        except asyncio.CancelledError:
            self.broken_off.append(call)
            raise
        finally:
            self._out[name] -= 1

    async def close(self) -> None:
        """Nothing may be asked any more."""
        self.is_closed = True

    async def arrived(self, count: int, *, seconds_max: float = 15) -> None:
        """Wait until so many attempts have been made in all."""
        await wait_until(
            lambda: len(self.calls) >= count,
            seconds_max=seconds_max,
            what=f"attempt {count}; there were {self.names()}",
        )

    def names(self) -> list[str]:
        """What was asked for, as ``flight action 1``."""
        return [f"{call.step} {call.call} {call.attempt}" for call in self.calls]

    def sent_steps(self) -> list[str]:
        """What was sent, as ``flight action``."""
        return [f"{call.step} {call.call}" for call in self.sent]

    async def _carry_out(self, call: OutgoingCall) -> Observation:
        if call.expired():
            return NotSent(reason=NotSentReason.EXPIRED, message="too late")
        name = (call.saga_id, call.step, call.call, call.attempt)
        if name in self._made:
            self.repeats.append(call)
        self._made.add(name)
        self.sent.append(call)
        gate = self._gates.get((call.step, call.call))
        if gate is not None:
            await gate.is_open.wait()
        answers = self._answers.get((call.step, call.call), [answered()])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return await answer(call) if callable(answer) else answer
