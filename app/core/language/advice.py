"""What is valid, and yet likely to need a person one day.

A saga is stuck where an effect stays unknown and its undo cannot be rendered without it. Most of
that shows in the definition, while its author is still there to mend it.
"""

from collections.abc import Iterator, Mapping, Sequence

from app.core.definition import Call, Definition, OnUnknown, Step, Verify
from app.core.errors import Fault
from app.core.expressions import Template
from app.core.faults import in_document_order
from app.core.identity import StepId
from app.core.language.durations import format_duration

type _References = frozenset[tuple[str, ...]]

_NONE: _References = frozenset()


def warnings(definition: Definition) -> list[Fault]:
    """What could leave a saga stuck that need not be, in the order of the document."""
    found: list[Fault] = []
    users = _users(definition)
    for index, step in enumerate(definition.steps):
        at = f"steps[{index}]"
        found += _lost_answers(step, at)
        found += _silent_verify(step, at, users[step.id])
        found += _blind_verify(step, at)
        found += _questions_to_people(step, at)
        found += _doubled(step, at)
        found += _late_callback(definition, step, at)
        found += _forgotten_key(step.action, f"{at}.action")
        if step.compensation is not None:
            found += _forgotten_key(step.compensation, f"{at}.compensation")
    return in_document_order(found, definition.document)


def _lost_answers(step: Step, at: str) -> Iterator[Fault]:
    """An undo that needs what only the answer to the action tells."""
    if step.compensation is None:
        return
    action, references = step.action, step.compensation.request.references
    output, accepted = _output_of(step.id, references), _find(("action", "accepted"), references)
    undo_otherwise = "an undo by 'action.key', 'action.request' or 'input'"
    if output is not None and action.verify is None and not _tells_output(action):
        lost = (
            "no callback comes" if action.callback else "the answer to this step's action is lost"
        )
        honoured = (
            ""
            if action.callback
            else ("'idempotent: true' on the action if the tool honours Idempotency-Key, or ")
        )
        accept = f"{honoured}'verify' with 'output' on the step, or {undo_otherwise}"
        yield _no_undo(at, lost, output, accept)
    if accepted is not None and not action.may_be_asked_again:
        accept = f"'idempotent: true' if the tool honours Idempotency-Key, or {undo_otherwise}"
        yield _no_undo(at, "the answer to this step's action is lost", accepted, accept)


def _no_undo(at: str, lost: str, needed: str, accepted: str) -> Fault:
    message = (
        f"if {lost}, there is no {needed!r} to undo it by, and the saga is stuck until a person "
        "helps"
    )
    return Fault(path=f"{at}.compensation", message=message, accepted=accepted)


def _silent_verify(step: Step, at: str, users: Sequence[tuple[str, str]]) -> Iterator[Fault]:
    """A verify that says that there is an output, and not which."""
    verify = step.action.verify
    if verify is not None and verify.output is None and users:
        where, needed = users[0]
        message = f"where this says that the action took effect, {where} has no {needed!r}"
        accepted = "'output', out of the answer, as \"${{ response.body.items[0] }}\""
        yield Fault(path=f"{at}.verify", message=message, accepted=accepted)


def _blind_verify(step: Step, at: str) -> Iterator[Fault]:
    """A verify that asks by what is not known while there is anything to ask."""
    verify = step.action.verify
    needed = None if verify is None else _output_of(step.id, _asked_by(verify))
    if needed is not None:
        message = f"there is no {needed!r} yet where it is unknown whether the action took effect"
        accepted = "a question by 'action.key', 'action.request' or 'input'"
        yield Fault(path=f"{at}.verify", message=message, accepted=accepted)


def _questions_to_people(step: Step, at: str) -> Iterator[Fault]:
    """A step that is never undone, of which nobody but a person could say whether it happened."""
    action = step.action
    if not (step.pivot or step.irreversible) or step.read_only:
        return
    if action.verify is None and not _tells_output(action):
        kind = "a pivot" if step.pivot else "irreversible"
        message = f"this step is {kind}: an unknown effect of it ends in a question to a person"
        honoured = "" if action.callback else ", or 'idempotent: true' on the action"
        yield Fault(path=at, message=message, accepted=f"'verify' on the step{honoured}")


def _doubled(step: Step, at: str) -> Iterator[Fault]:
    """A call that is sent again although that may do it twice."""
    action = step.action
    again = action.on_unknown is OnUnknown.RESEND and not action.may_be_asked_again
    if again and not step.read_only:
        message = "the same request again may take effect again"
        accepted = (
            "'idempotent: true' if the tool honours Idempotency-Key, or 'on_unknown: give_up', or "
            "'verify' on the step"
        )
        yield Fault(path=f"{at}.action.on_unknown", message=message, accepted=accepted)


def _late_callback(definition: Definition, step: Step, at: str) -> Iterator[Fault]:
    """A callback that may take longer than the saga."""
    callback, deadline, pivot = step.action.callback, definition.deadline, definition.pivot
    if callback is None or deadline is None or callback.within <= deadline:
        return
    if pivot is None or pivot.id not in definition.graph.ancestors[step.id]:
        message = f"the deadline, {format_duration(deadline)}, ends the wait before this has passed"
        path = f"{at}.action.completion.callback.within"
        yield Fault(path=path, message=message, accepted="a shorter wait, or a longer deadline")


def _forgotten_key(call: Call, at: str) -> Iterator[Fault]:
    """A key that the tool forgets before the attempts end."""
    elapsed = call.retry.max_elapsed
    if elapsed is None or call.on_unknown is not OnUnknown.RESEND or call.key_lifetime >= elapsed:
        return
    message = (
        f"after {format_duration(call.key_lifetime)} nothing uncertain is sent again, although "
        f"'max_elapsed' is {format_duration(elapsed)}"
    )
    accepted = "a 'key_lifetime' that is not shorter than 'retry.max_elapsed'"
    yield Fault(path=f"{at}.key_lifetime", message=message, accepted=accepted)


def _tells_output(action: Call) -> bool:
    """Whether the same request again tells what the first one did."""
    return action.may_be_asked_again and action.callback is None


def _asked_by(verify: Verify) -> _References:
    return verify.call.request.references | verify.done.references | verify.none.references


def _users(definition: Definition) -> Mapping[StepId, list[tuple[str, str]]]:
    """For each step, where its output is needed, and how it is called there."""
    users: dict[StepId, list[tuple[str, str]]] = {step.id: [] for step in definition.steps}
    for index, step in enumerate(definition.steps):
        for name, references in _parts(step):
            where = f"steps[{index}].{name}"
            own = _find(("action", "output"), references)
            if own is not None and name == "compensation":
                users[step.id].append((where, own))
            _add_users(where, references, users)
    if definition.output is not None:
        _add_users("output", definition.output.references, users)
    return users


def _add_users(
    where: str, references: _References, users: Mapping[StepId, list[tuple[str, str]]]
) -> None:
    for reference in sorted(references):
        match reference:
            case ("steps", step, "output", *_):
                users[StepId(step)].append((where, ".".join(reference)))
            case _:
                pass


def _parts(step: Step) -> Iterator[tuple[str, _References]]:
    yield "when", _references(step.when)
    yield "action", step.action.request.references
    if step.action.verify is not None:
        yield "verify", _asked_by(step.action.verify) | _references(step.action.verify.output)
    if step.compensation is not None:
        yield "compensation", step.compensation.request.references
        verify = step.compensation.verify
        yield "compensation.verify", _NONE if verify is None else _asked_by(verify)
    yield "default", _references(step.default)


def _references(template: Template | None) -> _References:
    return _NONE if template is None else template.references


def _output_of(step: StepId, references: _References) -> str | None:
    """How a part of a step refers to the output of its action, or None if it does not."""
    return _find(("action", "output"), references) or _find(("steps", step, "output"), references)


def _find(path: tuple[str, ...], references: _References) -> str | None:
    for reference in sorted(references):
        if reference[: len(path)] == path:
            return ".".join(reference)
    return None
