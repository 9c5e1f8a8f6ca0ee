"""Facts as JSON and back: what was reported."""

import datetime as dt
from collections.abc import Mapping
from typing import assert_never
from uuid import UUID

from app.core.events import (
    AttemptObserved,
    CallbackReceived,
    CancelRequested,
    Fact,
    PauseRequested,
    ResolveRequested,
    ResumeRequested,
    RetryRequested,
    SagaRequested,
    SagaWoken,
    SkipRequested,
    TerminateRequested,
    UndoRequested,
    Verb,
)
from app.core.identity import Direction, SagaId, StepId, TenantId
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
from app.core.saga import (
    CallbackOutcome,
    DefinitionRef,
    Effect,
)
from app.store.encoding.fields import (
    Json,
    slim,
)

FACT_NAMES: Mapping[type[Fact], str] = {
    SagaRequested: "saga_requested",
    AttemptObserved: "attempt_observed",
    CallbackReceived: "callback_received",
    SagaWoken: "saga_woken",
    CancelRequested: "cancel_requested",
    TerminateRequested: "terminate_requested",
    PauseRequested: "pause_requested",
    ResumeRequested: "resume_requested",
    RetryRequested: "retry_requested",
    ResolveRequested: "resolve_requested",
    SkipRequested: "skip_requested",
    UndoRequested: "undo_requested",
}
"""The stored and public name of each fact."""

_PLAIN_VERBS = {
    FACT_NAMES[verb]: verb
    for verb in (
        CancelRequested,
        TerminateRequested,
        PauseRequested,
        ResumeRequested,
        RetryRequested,
    )
}
"""Those that have an actor and a reason, and nothing else."""


def dump_fact(fact: Fact) -> Json:
    """A fact, as an entry stores it."""
    match fact:
        case SagaRequested():
            return _dump_request(fact)
        case AttemptObserved():
            return {
                "step": fact.step,
                "direction": fact.direction,
                "attempt": fact.attempt,
                "observation": _dump_observation(fact.observation),
            }
        case CallbackReceived():
            # What a success returned is stored once, as the call's output.
            return slim(
                {
                    "step": fact.step,
                    "direction": fact.direction,
                    "generation": fact.generation,
                    "outcome": fact.outcome,
                    "error": fact.error,
                    "effect": fact.effect,
                    "body_bytes": fact.body_bytes,
                    "digest": fact.digest,
                }
            )
        case SagaWoken():
            return slim({"losses": fact.losses})
        case ResolveRequested():
            return {
                **_dump_verb(fact),
                "step": fact.step,
                "effect": fact.effect,
                "evidence": {"value": fact.evidence},
            }
        case SkipRequested():
            return {**_dump_verb(fact), "step": fact.step}
        case UndoRequested():
            return {**_dump_verb(fact), "step": fact.step, "saga": fact.saga}
        case (
            CancelRequested()
            | TerminateRequested()
            | PauseRequested()
            | ResumeRequested()
            | RetryRequested()
        ):
            return _dump_verb(fact)
        case _:
            assert_never(fact)


def _dump_request(fact: SagaRequested) -> Json:
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
        **({"forward_only": True} if fact.forward_only else {}),
    }


def _dump_verb(verb: Verb) -> Json:
    return {"actor": verb.actor, "reason": verb.reason}


def load_fact(name: str, fields: Json, document: Json) -> Fact:
    """The fact that ``dump_fact`` wrote, by the name in its row's ``type``."""
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
                forward_only=fields.get("forward_only", False),
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
        case "callback_received":
            return _load_callback(fields)
        case "resolve_requested":
            return ResolveRequested(
                **_load_verb(fields),
                step=StepId(fields["step"]),
                effect=Effect(fields["effect"]),
                evidence=fields["evidence"]["value"],
            )
        case "skip_requested":
            return SkipRequested(**_load_verb(fields), step=StepId(fields["step"]))
        case "undo_requested":
            saga = SagaId(UUID(fields["saga"]))
            return UndoRequested(**_load_verb(fields), step=StepId(fields["step"]), saga=saga)
        case _ if name in _PLAIN_VERBS:
            return _PLAIN_VERBS[name](**_load_verb(fields))
        case _:
            raise ValueError(f"unknown fact {name!r} in {sorted(document)}")


def _load_callback(fields: Json) -> CallbackReceived:
    effect = fields.get("effect")
    return CallbackReceived(
        step=StepId(fields["step"]),
        direction=Direction(fields["direction"]),
        generation=fields.get("generation", 0),
        outcome=CallbackOutcome(fields["outcome"]),
        error=fields.get("error"),
        effect=None if effect is None else Effect(effect),
        body_bytes=fields.get("body_bytes", 0),
        digest=fields["digest"],
    )


def _load_verb(fields: Json) -> Json:
    return {"actor": fields["actor"], "reason": fields["reason"]}


def _dump_observation(observation: Observation) -> Json:
    match observation:
        case NotSent():
            return {"not_sent": observation.reason, "message": observation.message}
        case BrokenOff():
            return {"broken_off": observation.reason, "message": observation.message}
        case Claimed():
            return slim(
                {
                    "claimed": observation.claim,
                    "message": observation.message,
                    "retry_after_seconds": observation.retry_after_seconds,
                }
            )
        case Answered():
            return slim(
                {
                    "status": observation.status,
                    "retry_after": observation.retry_after,
                    "unreadable": not observation.readable,
                    "body_bytes": observation.body_bytes,
                }
            )
        case _:
            assert_never(observation)


def _load_observation(fields: Json) -> Observation:
    if "not_sent" in fields:
        return NotSent(reason=NotSentReason(fields["not_sent"]), message=fields["message"])
    if "broken_off" in fields:
        return BrokenOff(reason=BrokenOffReason(fields["broken_off"]), message=fields["message"])
    if "claimed" in fields:
        return Claimed(
            claim=Claim(fields["claimed"]),
            message=fields.get("message", ""),
            retry_after_seconds=fields.get("retry_after_seconds"),
        )
    return Answered(
        status=fields["status"],
        retry_after=fields.get("retry_after"),
        readable=not fields.get("unreadable", False),
        body_bytes=fields.get("body_bytes", 0),
    )
