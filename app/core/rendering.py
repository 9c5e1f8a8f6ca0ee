"""What expressions see, and how requests are rendered from it.

A scope holds only what the template refers to: an output may be a megabyte, and converting it for
an expression that does not read it would cost more than the call. Which roots an expression may
use depends on its place.
"""

import json
from urllib.parse import urlsplit

from app.core.definition import HttpTemplate
from app.core.expressions import ExpressionFailed, Scope, Template
from app.core.identity import CallKey, Direction, StepId
from app.core.json_value import JsonValue
from app.core.requests import HttpRequest, Request
from app.core.saga import CallState, Cause, Code, Failure, Problem, Saga

ACTION_ROOTS = frozenset({"input", "steps", "saga", "vars", "key"})
COMPENSATION_ROOTS = ACTION_ROOTS | {"action", "failure"}
OUTPUT_ROOTS = frozenset({"input", "steps", "saga", "vars"})

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain; charset=utf-8"


def render_action(template: HttpTemplate, saga: Saga, *, key: CallKey) -> HttpRequest:
    """The request of an action.

    Raises:
        ExpressionFailed: an expression has no value here, or none that fits its place.
    """
    scope = _scope(saga, references=template.references)
    scope["key"] = str(key)
    return _render_http(template, Scope(scope))


def render_compensation(
    template: HttpTemplate,
    saga: Saga,
    *,
    step: StepId,
    key: CallKey,
    failure: Failure | None,
) -> HttpRequest:
    """The request that undoes ``step``, as the saga knows it.

    Where the action's effect is unknown there is no ``action.output``: a template that needs it
    fails, one that does not is rendered.

    Raises:
        ExpressionFailed: an expression has no value here, or none that fits its place.
    """
    action = saga.call(step, Direction.ACTION)
    assert action is not None, step
    references = template.references
    scope = _scope(saga, references=references)
    scope["key"] = str(key)
    scope["action"] = _action(action, references)
    scope["failure"] = _failure(failure)
    return _render_http(template, Scope(scope))


def render_output(template: Template, saga: Saga) -> JsonValue:
    """What a completed saga returns.

    Raises:
        ExpressionFailed: an expression has no value here.
    """
    return template.render(Scope(_scope(saga, references=template.references)))


def _scope(saga: Saga, *, references: frozenset[tuple[str, ...]]) -> dict[str, JsonValue]:
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
        "input": facts.input if "input" in roots else None,
        "vars": dict(facts.vars) if "vars" in roots else {},
        "steps": steps,
        "saga": {"id": str(facts.id), "business_key": facts.business_key},
    }


def _outcome(action: CallState) -> dict[str, JsonValue]:
    outcome: dict[str, JsonValue] = {"effect": action.effect.value}
    if action.output is not None:
        outcome["output"] = action.output.value
    return outcome


def _action(action: CallState, references: frozenset[tuple[str, ...]]) -> dict[str, JsonValue]:
    """``action`` as a compensation sees it; without ``output`` where none is known."""
    seen = _outcome(action)
    seen["key"] = str(action.key)
    wanted = {r[1] if len(r) > 1 else "request" for r in references if r[0] == "action"}
    if "request" in wanted and action.request is not None:
        seen["request"] = _request(action.request)
    return seen


def _request(request: Request) -> JsonValue:
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
    if template.json is not None:
        # One serialisation, here, once: a resend must carry the same bytes.
        body = json.dumps(template.json.render(scope), ensure_ascii=False, separators=(",", ":"))
        return _request_of(template, url, headers, body=body, content_type=JSON_TYPE)
    if template.body is not None:
        text = template.body.render(scope)
        body = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
        return _request_of(template, url, headers, body=body, content_type=TEXT_TYPE)
    return _request_of(template, url, headers, body=None, content_type=None)


def _request_of(
    template: HttpTemplate,
    url: str,
    headers: list[tuple[str, str]],
    *,
    body: str | None,
    content_type: str | None,
) -> HttpRequest:
    if body is not None and len(body.encode()) > REQUEST_BYTES_MAX:
        raise ExpressionFailed(f"the request body is larger than {REQUEST_BYTES_MAX} bytes")
    return HttpRequest(
        method=template.method,
        url=url,
        headers=tuple(headers),
        body=body,
        content_type=content_type,
    )


def _check_url(url: str) -> None:
    """A rendered URL must still be one; a base from ``vars`` may be anything."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        valid = False
    if not valid:
        raise ExpressionFailed(f"{url!r} is not an absolute http or https URL")


REQUEST_BYTES_MAX = 1024 * 1024
"""Of a rendered body; more is a typed failure of the step."""
