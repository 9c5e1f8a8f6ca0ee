"""Calls as JSON and back."""

from uuid import UUID

from app.core.identity import CallKey, Direction, Incarnation, StepId
from app.core.requests import FunctionRequest, HttpRequest, Request
from app.core.saga import (
    Attempt,
    CallbackOutcome,
    CallState,
    CallStatus,
    Doubt,
    Effect,
    Heard,
    Settling,
)
from app.store.encoding.fields import (
    Json,
    dump_output,
    dump_problem,
    load_output,
    load_problem,
    read_needed_time,
    read_time,
    slim,
)


def _load_heard(fields: list[str] | None) -> Heard | None:
    if fields is None:
        return None
    outcome, digest = fields
    return Heard(outcome=CallbackOutcome(outcome), digest=digest)


def _load_settling(stored: str | bool) -> Settling:  # noqa: FBT001 - as format 1 wrote it
    if isinstance(stored, bool):
        return Settling.BY_RESEND if stored else Settling.NOT_ASKED
    return Settling(stored)


def dump_call(call: CallState) -> Json:
    """A call, as an entry stores it."""
    return slim(
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
            "settling": None if call.settling is Settling.NOT_ASKED else call.settling,
            "output": dump_output(call.output),
            "accepted": dump_output(call.accepted),
            "progress": dump_output(call.progress),
            "heard": call.heard and [call.heard.outcome, call.heard.digest],
            "error": call.error and dump_problem(call.error),
            "started_at": call.started_at,
            "finished_at": call.finished_at,
            "concluded_seq": call.concluded_seq,
        }
    )


def load_call(fields: Json) -> CallState:
    """The call that ``dump_call`` wrote."""
    request, attempt = fields.get("request"), fields.get("open")
    error = fields.get("error")
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
        round_started_at=read_needed_time(fields["round_started_at"]),
        first_sent_at=read_needed_time(fields["first_sent_at"]),
        open=None if attempt is None else _load_attempt(attempt),
        due_at=read_time(fields.get("due_at")),
        not_before=read_time(fields.get("not_before")),
        uncertain=fields.get("uncertain", False),
        doubts=tuple(
            Doubt(attempt=attempt, quiet_at=read_needed_time(quiet_at))
            for attempt, quiet_at in fields.get("doubts", [])
        ),
        settling=_load_settling(fields.get("settling", Settling.NOT_ASKED)),
        output=load_output(fields.get("output")),
        accepted=load_output(fields.get("accepted")),
        progress=load_output(fields.get("progress")),
        heard=_load_heard(fields.get("heard")),
        error=None if error is None else load_problem(error),
        started_at=read_needed_time(fields["started_at"]),
        finished_at=read_time(fields.get("finished_at")),
        concluded_seq=fields.get("concluded_seq"),
    )


def _dump_attempt(attempt: Attempt) -> Json:
    return {
        "number": attempt.number,
        "incarnation": attempt.incarnation,
        "send_by": attempt.send_by,
        "quiet_at": attempt.quiet_at,
        "known_before": attempt.known_before,
    }


def _load_attempt(fields: Json) -> Attempt:
    return Attempt(
        number=fields["number"],
        incarnation=Incarnation(UUID(fields["incarnation"])),
        send_by=read_needed_time(fields["send_by"]),
        quiet_at=read_needed_time(fields["quiet_at"]),
        known_before=Effect(fields["known_before"]),
    )


def _dump_request(request: Request) -> Json:
    if isinstance(request, FunctionRequest):
        return {"python": {"function": request.function, "arguments": request.arguments}}
    return {
        "http": slim(
            {
                "method": request.method,
                "url": request.url,
                "headers": [list(header) for header in request.headers],
                "body": {"text": request.body} if request.body is not None else None,
                "content_type": request.content_type,
            }
        )
    }


def _load_request(fields: Json) -> Request:
    if "python" in fields:
        return FunctionRequest(**fields["python"])
    http = fields["http"]
    body = http.get("body")
    return HttpRequest(
        method=http["method"],
        url=http["url"],
        headers=tuple((name, value) for name, value in http.get("headers", [])),
        body=None if body is None else body["text"],
        content_type=http.get("content_type"),
    )
