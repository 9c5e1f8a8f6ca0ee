"""Entries as JSON and back: the stored form of the journal.

Every word in it is part of the format (``entries.FORMAT``): a later release reads what an earlier
one wrote. Fields that have their resting value (None, false, 0, empty) are left out. An attempt's
answer is stored once, as the call's output; what remains of the observation is its status.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Any, assert_never
from uuid import UUID

import orjson

from app.core.entries import Entry
from app.core.events import (
    AttemptObserved,
    CancelRequested,
    Fact,
    RetryRequested,
    SagaRequested,
    SagaWoken,
)
from app.core.identity import CallKey, Direction, EntryId, Incarnation, SagaId, StepId, TenantId
from app.core.observation import (
    Answered,
    BrokenOff,
    BrokenOffReason,
    NotSent,
    NotSentReason,
    Observation,
)
from app.core.requests import HttpRequest, Request
from app.core.saga import (
    Attempt,
    CallState,
    CallStatus,
    Cause,
    Code,
    Conclusion,
    DefinitionRef,
    Doubt,
    Effect,
    Failure,
    Output,
    Problem,
    Question,
    SagaStatus,
    Stuck,
)

type _Json = dict[str, Any]
"""A JSON object on its way in or out; typed again by the functions below."""

_RESTING: tuple[object, ...] = (None, False, 0, "", [], {})

FACT_NAMES: Mapping[type[Fact], str] = {
    SagaRequested: "saga_requested",
    AttemptObserved: "attempt_observed",
    SagaWoken: "saga_woken",
    CancelRequested: "cancel_requested",
    RetryRequested: "retry_requested",
}
"""The stored and public name of each fact."""


def dump_entry(entry: Entry) -> str:
    """The JSON text of an entry, without its seq, id and time, which have columns of their own."""
    document = {
        "fact": _dump_fact(entry.fact),
        "now": _dump_conclusion(entry.now),
        "calls": [_dump_call(call) for call in entry.calls],
    }
    return orjson.dumps(_slim(document)).decode()


def load_entry(*, seq: int, id: UUID, at: dt.datetime, type: str, data: str) -> Entry:  # noqa: A002 - the columns' names
    """The entry that ``dump_entry`` wrote, from its row's columns."""
    document = orjson.loads(data)
    return Entry(
        seq=seq,
        id=EntryId(id),
        at=at,
        fact=_load_fact(type, document.get("fact", {}), document),
        now=_load_conclusion(document["now"]),
        calls=tuple(_load_call(call) for call in document.get("calls", [])),
    )


def _slim(fields: _Json) -> _Json:
    return {name: value for name, value in fields.items() if value not in _RESTING}


def _time(text: str | None) -> dt.datetime | None:
    return None if text is None else dt.datetime.fromisoformat(text)


def _needed_time(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def _dump_fact(fact: Fact) -> _Json:
    match fact:
        case SagaRequested():
            return {
                "id": fact.id,
                "tenant": fact.tenant,
                "definition": {"name": fact.definition.name, "version": fact.definition.version},
                # Wrapped like outputs: null, false and 0 are inputs too.
                "input": {"value": fact.input},
                "vars": dict(fact.vars),
                "key_seed": fact.key_seed.hex(),
                "business_key": fact.business_key,
                "labels": dict(fact.labels),
                "deadline_seconds": fact.deadline and fact.deadline.total_seconds(),
            }
        case AttemptObserved():
            return {
                "step": fact.step,
                "direction": fact.direction,
                "attempt": fact.attempt,
                "observation": _dump_observation(fact.observation),
            }
        case SagaWoken():
            return _slim({"losses": fact.losses})
        case CancelRequested() | RetryRequested():
            return {"actor": fact.actor, "reason": fact.reason}
        case _:
            assert_never(fact)


def _load_fact(name: str, fields: _Json, document: _Json) -> Fact:
    match name:
        case "saga_requested":
            seconds = fields["deadline_seconds"]
            return SagaRequested(
                id=SagaId(UUID(fields["id"])),
                tenant=TenantId(fields["tenant"]),
                definition=DefinitionRef(**fields["definition"]),
                input=fields["input"]["value"],
                vars=fields["vars"],
                key_seed=bytes.fromhex(fields["key_seed"]),
                business_key=fields["business_key"],
                labels=fields["labels"],
                deadline=None if seconds is None else dt.timedelta(seconds=seconds),
            )
        case "attempt_observed":
            return AttemptObserved(
                step=StepId(fields["step"]),
                direction=Direction(fields["direction"]),
                attempt=fields["attempt"],
                observation=_load_observation(fields["observation"]),
            )
        case "saga_woken":
            return SagaWoken(losses=fields.get("losses", 0))
        case "cancel_requested":
            return CancelRequested(**fields)
        case "retry_requested":
            return RetryRequested(**fields)
        case _:
            raise ValueError(f"unknown fact {name!r} in {sorted(document)}")


def _dump_observation(observation: Observation) -> _Json:
    match observation:
        case NotSent():
            return {"not_sent": observation.reason, "message": observation.message}
        case BrokenOff():
            return {"broken_off": observation.reason, "message": observation.message}
        case Answered():
            return _slim(
                {
                    "status": observation.status,
                    "retry_after": observation.retry_after,
                    "unreadable": not observation.readable,
                    "body_bytes": observation.body_bytes,
                }
            )
        case _:
            assert_never(observation)


def _load_observation(fields: _Json) -> Observation:
    if "not_sent" in fields:
        return NotSent(reason=NotSentReason(fields["not_sent"]), message=fields["message"])
    if "broken_off" in fields:
        return BrokenOff(reason=BrokenOffReason(fields["broken_off"]), message=fields["message"])
    return Answered(
        status=fields["status"],
        retry_after=fields.get("retry_after"),
        readable=not fields.get("unreadable", False),
        body_bytes=fields.get("body_bytes", 0),
    )


def _dump_conclusion(now: Conclusion) -> _Json:
    return _slim(
        {
            "status": now.status,
            "owner": now.owner,
            "due_at": now.due_at,
            "failure": now.failure and _dump_failure(now.failure),
            "stuck": now.stuck and _dump_stuck(now.stuck),
            "output": now.output and {"value": now.output.value},
            "attention": now.attention,
            "finished_at": now.finished_at,
            "weight_bytes": now.weight_bytes,
        }
    )


def _load_conclusion(fields: _Json) -> Conclusion:
    owner, failure = fields.get("owner"), fields.get("failure")
    stuck, output = fields.get("stuck"), fields.get("output")
    return Conclusion(
        status=SagaStatus(fields["status"]),
        owner=None if owner is None else Incarnation(UUID(owner)),
        due_at=_time(fields.get("due_at")),
        failure=None if failure is None else load_failure(failure),
        stuck=None if stuck is None else _load_stuck(stuck),
        output=None if output is None else Output(value=output["value"]),
        attention=fields.get("attention", False),
        finished_at=_time(fields.get("finished_at")),
        weight_bytes=fields.get("weight_bytes", 0),
    )


def _dump_problem(problem: Problem) -> _Json:
    return _slim(
        {"code": problem.code, "message": problem.message, "http_status": problem.http_status}
    )


def _load_problem(fields: _Json) -> Problem:
    return Problem(
        code=Code(fields["code"]),
        message=fields.get("message", ""),
        http_status=fields.get("http_status"),
    )


def dump_failure(failure: Failure) -> str:
    """The JSON text of a failure, for its column in the head row."""
    return orjson.dumps(_dump_failure(failure)).decode()


def _dump_failure(failure: Failure) -> _Json:
    problem = _dump_problem(failure.problem)
    return _slim({"cause": failure.cause, "step": failure.step, "problem": problem})


def load_failure(fields: _Json) -> Failure:
    """The failure that ``dump_failure`` wrote."""
    step = fields.get("step")
    return Failure(
        cause=Cause(fields["cause"]),
        step=None if step is None else StepId(step),
        problem=_load_problem(fields["problem"]),
    )


def _dump_stuck(stuck: Stuck) -> _Json:
    return _slim(
        {
            "step": stuck.step,
            "question": stuck.question,
            "problem": _dump_problem(stuck.problem),
            "resumes": stuck.resumes,
        }
    )


def _load_stuck(fields: _Json) -> Stuck:
    step = fields.get("step")
    return Stuck(
        step=None if step is None else StepId(step),
        question=Question(fields["question"]),
        problem=_load_problem(fields["problem"]),
        resumes=SagaStatus(fields["resumes"]),
    )


def _dump_call(call: CallState) -> _Json:
    return _slim(
        {
            "step": call.step,
            "direction": call.direction,
            "status": call.status,
            "effect": call.effect,
            "generation": call.generation,
            "key": call.key,
            "request": call.request and _dump_request(call.request),
            "attempts": call.attempts,
            "first_attempt": call.first_attempt,
            "tries": call.tries,
            "failures": call.failures,
            "round_started_at": call.round_started_at,
            "first_sent_at": call.first_sent_at,
            "open": call.open and _dump_attempt(call.open),
            "due_at": call.due_at,
            "not_before": call.not_before,
            "uncertain": call.uncertain,
            "doubts": [[doubt.attempt, doubt.quiet_at] for doubt in call.doubts],
            "settling": call.settling,
            "output": call.output and {"value": call.output.value},
            "error": call.error and _dump_problem(call.error),
            "started_at": call.started_at,
            "finished_at": call.finished_at,
            "concluded_seq": call.concluded_seq,
        }
    )


def _load_call(fields: _Json) -> CallState:
    request, attempt = fields.get("request"), fields.get("open")
    output, error = fields.get("output"), fields.get("error")
    return CallState(
        step=StepId(fields["step"]),
        direction=Direction(fields["direction"]),
        status=CallStatus(fields["status"]),
        effect=Effect(fields["effect"]),
        generation=fields.get("generation", 0),
        key=CallKey(UUID(fields["key"])),
        request=None if request is None else _load_request(request),
        attempts=fields.get("attempts", 0),
        first_attempt=fields["first_attempt"],
        tries=fields.get("tries", 0),
        failures=fields.get("failures", 0),
        round_started_at=_needed_time(fields["round_started_at"]),
        first_sent_at=_needed_time(fields["first_sent_at"]),
        open=None if attempt is None else _load_attempt(attempt),
        due_at=_time(fields.get("due_at")),
        not_before=_time(fields.get("not_before")),
        uncertain=fields.get("uncertain", False),
        doubts=tuple(
            Doubt(attempt=attempt, quiet_at=_needed_time(quiet_at))
            for attempt, quiet_at in fields.get("doubts", [])
        ),
        settling=fields.get("settling", False),
        output=None if output is None else Output(value=output["value"]),
        error=None if error is None else _load_problem(error),
        started_at=_needed_time(fields["started_at"]),
        finished_at=_time(fields.get("finished_at")),
        concluded_seq=fields.get("concluded_seq"),
    )


def _dump_attempt(attempt: Attempt) -> _Json:
    return {
        "number": attempt.number,
        "incarnation": attempt.incarnation,
        "send_by": attempt.send_by,
        "quiet_at": attempt.quiet_at,
        "known_before": attempt.known_before,
    }


def _load_attempt(fields: _Json) -> Attempt:
    return Attempt(
        number=fields["number"],
        incarnation=Incarnation(UUID(fields["incarnation"])),
        send_by=_needed_time(fields["send_by"]),
        quiet_at=_needed_time(fields["quiet_at"]),
        known_before=Effect(fields["known_before"]),
    )


def _dump_request(request: Request) -> _Json:
    return {
        "http": _slim(
            {
                "method": request.method,
                "url": request.url,
                "headers": [list(header) for header in request.headers],
                "body": {"text": request.body} if request.body is not None else None,
                "content_type": request.content_type,
            }
        )
    }


def _load_request(fields: _Json) -> Request:
    http = fields["http"]
    body = http.get("body")
    return HttpRequest(
        method=http["method"],
        url=http["url"],
        headers=tuple((name, value) for name, value in http.get("headers", [])),
        body=None if body is None else body["text"],
        content_type=http.get("content_type"),
    )
