"""What expressions see, and how requests are rendered from it.

A scope holds only what the template refers to: an output may be a megabyte, and converting it for
an expression that does not read it would cost more than the call. Which roots an expression may
use depends on its place (``language``).
"""

import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from app.core import secrets
from app.core.definition import FunctionTemplate, HttpTemplate, RequestTemplate
from app.core.expressions import ExpressionFailed, Scope, Template
from app.core.identity import CallKey, Direction, StepId
from app.core.json_value import JsonValue
from app.core.observation import Answered
from app.core.requests import FunctionRequest, HttpRequest, Request
from app.core.saga import CallState, CallStatus, Cause, Code, Failure, Problem, Saga

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain; charset=utf-8"

REQUEST_BYTES_MAX = 1024 * 1024
"""Of a rendered body, or of a function's arguments; more is a typed failure of the step."""

type Roots = Mapping[str, JsonValue]
"""What an expression may begin with, beside what every place has."""


def render_request(template: RequestTemplate, saga: Saga, roots: Roots) -> Request:
    """The request of a call.

    Args:
        template: of the definition.
        saga: as it is now.
        roots: see ``action_roots``, ``undo_roots`` and ``verify_roots``.

    Raises:
        ExpressionFailed: an expression has no value here, or none that fits its place.
    """
    scope = Scope({**_common(saga, references=template.references), **roots})
    match template:
        case HttpTemplate():
            return _render_http(template, scope)
        case FunctionTemplate():
            return _render_function(template, scope)


def render_value(template: Template, saga: Saga, roots: Roots | None = None) -> JsonValue:
    """The value of a template: an output, a default, a part of an answer.

    Raises:
        ExpressionFailed: an expression has no value here.
    """
    return template.render(
        Scope({**_common(saga, references=template.references), **(roots or {})})
    )


def holds(condition: Template, saga: Saga, roots: Roots | None = None) -> bool:
    """Whether a condition is true.

    Raises:
        ExpressionFailed: it has no value here, or one that is neither true nor false.
    """
    value = render_value(condition, saga, roots)
    if not isinstance(value, bool):
        raise ExpressionFailed("a condition must be true or false, and this is neither")
    return value


def action_roots(*, key: CallKey, callback_url: str) -> Roots:
    """What an action sees beside what every place has."""
    return {"key": str(key), "callback": {"url": callback_url}}


def undo_roots(
    action: CallState, *, key: CallKey, callback_url: str, failure: Failure | None
) -> Roots:
    """What a compensation, and an action's verify, see beside what every place has.

    Where the action's effect is unknown there is no ``action.output``: a template that needs it
    fails, one that does not is rendered.

    Args:
        action: the call of the step that is to be undone, or asked about.
        key: of the call that is rendered.
        callback_url: the same.
        failure: why the saga is undone; None in a dry rendering.
    """
    return {
        "key": str(key),
        "callback": {"url": callback_url},
        "action": _action(action),
        "failure": _failure(failure),
    }


def verify_roots(
    action: CallState, undo: CallState | None, *, key: CallKey, failure: Failure | None
) -> Roots:
    """What a verify sees; ``undo`` is the compensation that is asked about, if it is one."""
    roots = dict(undo_roots(action, key=key, callback_url="", failure=failure))
    if undo is not None:
        roots["compensation"] = {"key": str(undo.key), "request": _request(undo.request)}
    return roots


def response_root(answer: Answered) -> Roots:
    """An answer, as conditions see it."""
    return {"response": {"status": answer.status, "body": answer.body}}


def _common(saga: Saga, *, references: frozenset[tuple[str, ...]]) -> dict[str, JsonValue]:
    """The roots that every place has; ``steps`` holds the referred ones only."""
    roots = {reference[0] for reference in references}
    facts = saga.facts
    steps: dict[str, JsonValue] = {}
    for reference in references:
        if reference[0] != "steps":
            continue
        # A bare `steps` or a computed index refers to all of them.
        named = {StepId(reference[1])} if len(reference) > 1 else {s for s, _ in saga.calls}
        for step in named:
            action = saga.call(step, Direction.ACTION)
            if action is not None:
                steps[step] = _outcome(action)
    return {
        **_secrets(saga, references=references),
        "input": facts.input if "input" in roots else None,
        "vars": dict(facts.vars) if "vars" in roots else {},
        "steps": steps,
        "saga": {"id": str(facts.id), "business_key": facts.business_key},
    }


def _secrets(
    saga: Saga, *, references: frozenset[tuple[str, ...]]
) -> dict[str, dict[str, JsonValue]]:
    """The marks of the secrets that a request names; none of any other."""
    names = [reference[1] for reference in references if reference[0] == "secrets"]
    marks = {name: secrets.mark(name, key_seed=saga.facts.key_seed) for name in names}
    return {"secrets": dict(marks)} if marks else {}


def _outcome(action: CallState) -> dict[str, JsonValue]:
    outcome: dict[str, JsonValue] = {"effect": action.effect.value}
    if action.output is not None:
        outcome["output"] = action.output.value
    return outcome


def _action(action: CallState) -> dict[str, JsonValue]:
    """``action`` as others see it; without ``output`` or ``accepted`` where none is known.

    The default of an optional step that failed is nothing to undo it by.
    """
    seen = _outcome(action)
    if action.status is not CallStatus.SUCCEEDED:
        seen.pop("output", None)
    seen["key"] = str(action.key)
    if action.accepted is not None:
        seen["accepted"] = action.accepted.value
    if action.request is not None:
        seen["request"] = _request(action.request)
    return seen


def _request(request: Request | None) -> JsonValue:
    match request:
        case None:
            return None
        case FunctionRequest():
            return {"function": request.function, "arguments": json.loads(request.arguments)}
        case HttpRequest():
            body: JsonValue = request.body
            if request.body is not None and request.content_type == JSON_TYPE:
                body = json.loads(request.body)
            return {
                "method": request.method,
                "url": request.url,
                "headers": dict(request.headers),
                "body": body,
            }


def _failure(failure: Failure | None) -> JsonValue:
    """``failure`` as a compensation sees it; in a dry rendering, one that could be."""
    if failure is None:
        problem = Problem(code=Code.REFUSED, message="none yet")
        failure = Failure(cause=Cause.STEP_FAILED, step=None, problem=problem)
    return {
        "cause": failure.cause.value,
        "step": failure.step or "none",
        "code": failure.problem.code.value,
        "message": failure.problem.message,
        "http_status": failure.problem.http_status or 0,
    }


def _render_http(template: HttpTemplate, scope: Scope) -> HttpRequest:
    url = template.url.render(scope)
    assert isinstance(url, str), url
    _check_url(url)
    headers: list[tuple[str, str]] = []
    for name, value in template.headers:
        text = value.render(scope)
        headers.append((name, text if isinstance(text, str) else json.dumps(text)))
    body, content_type = None, None
    if template.json is not None:
        # One serialisation, here, once: a resend must carry the same bytes.
        body, content_type = _compact(template.json.render(scope)), JSON_TYPE
    elif template.body is not None:
        text = template.body.render(scope)
        body = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
        content_type = TEXT_TYPE
    _check_size(body, what="the request body")
    return HttpRequest(
        method=template.method,
        url=url,
        headers=tuple(headers),
        body=body,
        content_type=content_type,
    )


def _render_function(template: FunctionTemplate, scope: Scope) -> FunctionRequest:
    arguments = template.arguments.render(scope)
    if not isinstance(arguments, dict):
        raise ExpressionFailed("the arguments of a function must be an object")
    text = _compact(arguments)
    _check_size(text, what="the arguments")
    return FunctionRequest(function=template.function, arguments=text)


def _compact(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _check_size(text: str | None, *, what: str) -> None:
    if text is not None and len(text.encode()) > REQUEST_BYTES_MAX:
        raise ExpressionFailed(f"{what} would be larger than {REQUEST_BYTES_MAX} bytes")


def _check_url(url: str) -> None:
    """A rendered URL must still be one; a base from ``vars`` may be anything."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        valid = False
    if not valid:
        raise ExpressionFailed(f"{url!r} is not an absolute http or https URL")
