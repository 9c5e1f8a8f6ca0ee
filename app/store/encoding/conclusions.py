"""The saga as a whole after an entry, as JSON and back."""

from uuid import UUID

import orjson

from app.core.identity import Incarnation, SagaId, StepId
from app.core.saga import (
    Cause,
    Conclusion,
    Failure,
    Pause,
    Pending,
    Question,
    SagaStatus,
    Stuck,
    Wish,
)
from app.store.encoding.fields import (
    Json,
    dump_output,
    dump_problem,
    load_output,
    load_problem,
    read_time,
    slim,
)


def dump_conclusion(now: Conclusion) -> Json:
    """A conclusion, as an entry stores it."""
    return slim(
        {
            "status": now.status,
            "owner": now.owner,
            "due_at": now.due_at,
            "failure": now.failure and _dump_failure(now.failure),
            "stuck": now.stuck and _dump_stuck(now.stuck),
            "output": dump_output(now.output),
            "attention": now.attention,
            "finished_at": now.finished_at,
            "weight_bytes": now.weight_bytes,
            "pause": now.pause and _dump_pause(now.pause),
            "pending": now.pending and _dump_pending(now.pending),
            "forward_only": now.forward_only,
            "undone_by": [list(each) for each in now.undone_by],
        }
    )


def load_conclusion(fields: Json) -> Conclusion:
    """The conclusion that ``dump_conclusion`` wrote."""
    owner, failure = fields.get("owner"), fields.get("failure")
    stuck = fields.get("stuck")
    pause, pending = fields.get("pause"), fields.get("pending")
    return Conclusion(
        status=SagaStatus(fields["status"]),
        owner=None if owner is None else Incarnation(UUID(owner)),
        due_at=read_time(fields.get("due_at")),
        failure=None if failure is None else load_failure(failure),
        stuck=None if stuck is None else _load_stuck(stuck),
        output=load_output(fields.get("output")),
        attention=fields.get("attention", False),
        finished_at=read_time(fields.get("finished_at")),
        weight_bytes=fields.get("weight_bytes", 0),
        pause=None if pause is None else _load_pause(pause),
        pending=None if pending is None else _load_pending(pending),
        forward_only=fields.get("forward_only", False),
        undone_by=tuple(
            (StepId(step), SagaId(UUID(saga))) for step, saga in fields.get("undone_by", [])
        ),
    )


def _dump_pause(pause: Pause) -> Json:
    return {"actor": pause.actor, "reason": pause.reason, "resumes": pause.resumes}


def _load_pause(fields: Json) -> Pause:
    return Pause(
        actor=fields["actor"], reason=fields["reason"], resumes=SagaStatus(fields["resumes"])
    )


def _dump_pending(pending: Pending) -> Json:
    return slim(
        {
            "wish": pending.wish,
            "actor": pending.actor,
            "reason": pending.reason,
            "failure": pending.failure and _dump_failure(pending.failure),
            "lapsed": pending.lapsed,
        }
    )


def _load_pending(fields: Json) -> Pending:
    failure = fields.get("failure")
    return Pending(
        wish=Wish(fields["wish"]),
        actor=fields.get("actor"),
        reason=fields.get("reason"),
        failure=None if failure is None else load_failure(failure),
        lapsed=fields.get("lapsed", False),
    )


def dump_failure(failure: Failure) -> str:
    """The JSON text of a failure, for its column in the head row."""
    return orjson.dumps(_dump_failure(failure)).decode()


def _dump_failure(failure: Failure) -> Json:
    problem = dump_problem(failure.problem)
    return slim({"cause": failure.cause, "step": failure.step, "problem": problem})


def load_failure(fields: Json) -> Failure:
    """The failure that ``dump_failure`` wrote."""
    step = fields.get("step")
    return Failure(
        cause=Cause(fields["cause"]),
        step=None if step is None else StepId(step),
        problem=load_problem(fields["problem"]),
    )


def _dump_stuck(stuck: Stuck) -> Json:
    return slim(
        {
            "step": stuck.step,
            "question": stuck.question,
            "problem": dump_problem(stuck.problem),
            "resumes": stuck.resumes,
        }
    )


def _load_stuck(fields: Json) -> Stuck:
    step = fields.get("step")
    return Stuck(
        step=None if step is None else StepId(step),
        question=Question(fields["question"]),
        problem=load_problem(fields["problem"]),
        resumes=SagaStatus(fields["resumes"]),
    )
