"""The definition of a saga that undoes one step of another, whose end came before its effect."""

import json
from collections.abc import Mapping

from app.core.definition import Call, Definition, Step
from app.core.identity import Direction
from app.core.json_value import JsonValue
from app.core.language.durations import format_duration
from app.core.rendering import JSON_TYPE, render_request, undo_roots
from app.core.requests import FunctionRequest, HttpRequest, Request
from app.core.saga import Saga
from app.core.secrets import as_template, mark

_PASSES = (401, 403, 409, 423)
"""Refusals that are retried of an undo; see ``outcome``."""


def undo_document(definition: Definition, saga: Saga, step: Step) -> JsonValue:
    """A document with one step, whose action is the compensation as it is rendered now.

    Args:
        definition: the version that ``saga`` pins.
        saga: one that is over.
        step: one of its steps, with a compensation.

    Raises:
        ExpressionFailed: the compensation cannot be rendered.
    """
    action = saga.call(step.id, Direction.ACTION)
    assert action is not None, step.id
    call = step.call(Direction.COMPENSATION)
    # The action's key stands in for one that does not exist yet, and so does a mark for the URL.
    url = _url_mark(saga)
    roots = undo_roots(action, key=action.key, callback_url=url, failure=saga.now.failure)
    request = render_request(call.request, saga, roots)
    return {
        "amends": 1,
        "name": f"undo_{definition.name}"[:100],
        "description": f"Undoes what step {step.id} of saga {saga.id} did.",
        "steps": [
            {
                "id": step.id,
                # What it does is an undo: there is nothing to go back to.
                "irreversible": True,
                "action": {
                    **_connector(request, saga),
                    **_completion(call),
                    "idempotent": True,
                    "timeout": format_duration(call.timeout),
                    "retry": _retry(call),
                    "key_lifetime": format_duration(call.key_lifetime),
                    "late_window": format_duration(call.late_window),
                    "responses": [*_own_rules(definition, step), *_rules(call)],
                },
            }
        ],
    }


def _completion(call: Call) -> dict[str, JsonValue]:
    if call.callback is None:
        return {}
    return {"completion": {"callback": {"within": format_duration(call.callback.within)}}}


def _url_mark(saga: Saga) -> str:
    """What stands for the URL of a callback that does not exist yet; no encoding changes it."""
    return mark("callback.url", key_seed=saga.facts.key_seed)


def _connector(request: Request, saga: Saga) -> dict[str, JsonValue]:
    match request:
        case FunctionRequest():
            arguments = json.loads(request.arguments)
            literal = _literal(arguments, saga)
            return {"python": {"function": request.function, "arguments": literal}}
        case HttpRequest():
            http: dict[str, JsonValue] = {
                "method": request.method,
                "url": _literal(request.url, saga),
                "headers": {name: _literal(value, saga) for name, value in request.headers},
            }
            if request.body is not None and request.content_type == JSON_TYPE:
                http["json"] = _literal(json.loads(request.body), saga)
            elif request.body is not None:
                http["body"] = _literal(request.body, saga)
            return {"http": http}


def _literal(value: JsonValue, saga: Saga) -> JsonValue:
    """A template that renders to a value: data are never evaluated, secrets are named again."""
    match value:
        case str():
            text = as_template(value, key_seed=saga.facts.key_seed)
            return text.replace(_url_mark(saga), "${{ callback.url }}")
        case list():
            return [_literal(each, saga) for each in value]
        case dict():
            return {name: _literal(each, saga) for name, each in value.items()}
        case _:
            return value


def _retry(call: Call) -> dict[str, JsonValue]:
    policy = call.retry
    retry: dict[str, JsonValue] = {
        "max_attempts": policy.max_attempts,
        "initial_delay": format_duration(policy.initial_delay),
        "backoff": policy.backoff,
        "max_delay": format_duration(policy.max_delay),
        # Beside a long default for actions, an undo may take its time.
        "max_elapsed": format_duration(policy.max_elapsed) if policy.max_elapsed else "30d",
    }
    return retry


def _own_rules(definition: Definition, step: Step) -> list[JsonValue]:
    """What the compensation itself says of answers, as its author wrote it."""
    document = definition.document
    steps = document["steps"] if isinstance(document, Mapping) else []
    assert isinstance(steps, list), steps
    written = next(each for each in steps if isinstance(each, dict) and each["id"] == step.id)
    compensation = written["compensation"]
    assert isinstance(compensation, dict), compensation
    rules = compensation.get("responses", [])
    return list(rules) if isinstance(rules, list) else []


def _rules(call: Call) -> list[JsonValue]:
    """What answers to an undo mean, where they mean something else to an action."""
    gone = (404, 410) if call.method == "DELETE" else (410,)
    rules: list[JsonValue] = [{"status": status, "means": "succeeded"} for status in gone]
    return rules + [{"status": status, "means": "retry"} for status in _PASSES]
