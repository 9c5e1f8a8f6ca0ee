"""A replica with an engine that only does as it is told: the test says what tools answered."""

from dataclasses import dataclass
from uuid import UUID

from app.core.callbacks import token_of
from app.core.events import (
    AttemptObserved,
    PauseRequested,
    SagaVerb,
    SagaWoken,
    SkipRequested,
    TerminateRequested,
)
from app.core.identity import Direction, SagaId, StepId
from app.core.json_value import JsonValue
from app.core.observation import Answered, BrokenOff, BrokenOffReason, Observation
from app.core.saga import Saga, SagaStatus
from app.operations import Context, StartRequest, start_saga, tell_saga
from app.store import claim_due
from tests.waiting import wait_until

TIMED_OUT = BrokenOff(reason=BrokenOffReason.TIMED_OUT, message="no answer in 5 s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """Runs sagas by hand.

    Attributes:
        context: of a replica that runs an engine, so that what is started is opened at once.
    """

    context: Context

    async def start(
        self, definition: str = "book_trip", *, business_key: str | None = None
    ) -> SagaId:
        """Start a saga, and open the first step's action."""
        request = StartRequest(definition=definition, business_key=business_key)
        return (await start_saga(self.context, request)).saga.id

    async def answer(
        self,
        saga: SagaId,
        step: str,
        status: int = 200,
        *,
        body: JsonValue = None,
        direction: Direction = Direction.ACTION,
        attempt: int = 1,
    ) -> Saga:
        """Report what a tool answered; the next call is opened at once."""
        seen = Answered(status=status, body=body)
        return await self.observe(saga, step, seen, direction=direction, attempt=attempt)

    async def observe(
        self,
        saga: SagaId,
        step: str,
        seen: Observation,
        *,
        direction: Direction = Direction.ACTION,
        attempt: int = 1,
    ) -> Saga:
        """Report what was seen of an attempt."""
        fact = AttemptObserved(
            step=StepId(step), direction=direction, attempt=attempt, observation=seen
        )
        return await self.context.journal.record(saga, fact)

    async def complete(self, saga: SagaId, *steps: str) -> Saga:
        """Let the actions of these steps succeed, in their order."""
        moved = None
        for step in steps or ("flight", "hotel"):
            moved = await self.answer(saga, step, body={"id": f"{step}-1"})
        assert moved is not None
        return moved

    async def compensate(self, saga: SagaId) -> Saga:
        """Let the first step succeed, the second be refused, and the first be undone."""
        await self.answer(saga, "flight", body={"id": "F1"})
        await self.answer(saga, "hotel", 402, body="card declined")
        return await self.answer(saga, "flight", 204, direction=Direction.COMPENSATION)

    async def strand(self, saga: SagaId) -> Saga:
        """Let the undo of the first step be refused: the saga is stuck."""
        await self.answer(saga, "flight", body={"id": "F1"})
        await self.answer(saga, "hotel", 402)
        return await self.answer(saga, "flight", 400, body="no", direction=Direction.COMPENSATION)

    async def bring(self, status: SagaStatus) -> SagaId:
        """A saga of `book_trip` that has come to a status, in the usual way; never pending."""
        saga = await self.start()
        match status:
            case SagaStatus.COMPLETED:
                await self.complete(saga)
            case SagaStatus.COMPENSATING:
                await self.answer(saga, "flight", body={"id": "F1"})
                await self.answer(saga, "hotel", 402)
            case SagaStatus.COMPENSATED:
                await self.compensate(saga)
            case SagaStatus.STUCK | SagaStatus.PARTIALLY_COMPENSATED:
                await self.strand(saga)
            case SagaStatus.TERMINATED:
                await self.answer(saga, "flight", body={"id": "F1"})
                await self.tell(saga, TerminateRequested(actor="ann", reason="enough"))
                await self.answer(saga, "hotel", 402)
            case SagaStatus.PAUSED:
                await self.tell(saga, PauseRequested(actor="ann", reason="wait"))
            case _:
                assert status is SagaStatus.RUNNING
        if status is SagaStatus.PARTIALLY_COMPENSATED:
            skip = SkipRequested(actor="ann", reason="let it be", step=StepId("flight"))
            await self.tell(saga, skip)
        assert (await self.load(saga)).status is status
        return saga

    async def tell(self, saga: SagaId, verb: SagaVerb) -> Saga:
        """Tell a saga something, at the replica that runs it."""
        return (await tell_saga(self.context, saga, verb)).saga

    async def load(self, saga: UUID) -> Saga:
        """A saga as its journal tells."""
        return (await self.context.journal.load([SagaId(saga)]))[SagaId(saga)]

    async def token(self, saga: UUID, step: str, *, direction: Direction = Direction.ACTION) -> str:
        """What the tool of a call was told to report with."""
        loaded = await self.load(saga)
        call = loaded.call(StepId(step), direction)
        assert call is not None, step
        return token_of(loaded.facts, call)

    async def take_up(self, saga: UUID) -> Saga:
        """Look again, as an engine does that sees what others reported; claim what is due."""
        self.context.journal.forget(SagaId(saga))
        incarnation = self.context.journal._replica.incarnation

        async def claimed() -> bool:
            # "Due now" was said by another clock than the database's, which may be a little behind.
            async with self.context.database.write() as tx:
                await claim_due(tx, incarnation=incarnation, limit=100, suspects=False)
                owner = await tx.fetch_value("SELECT owner FROM sagas WHERE id = $1", saga)
            return bool(owner == incarnation)

        await wait_until(claimed, what=f"saga {saga} to be due")
        return await self.wake(saga)

    async def wake(self, saga: UUID) -> Saga:
        """Take up a saga that this replica owns."""
        return await self.context.journal.record(SagaId(saga), SagaWoken())
