"""A definition: the immutable, versioned template of a saga, parsed and compiled.

``document`` makes one out of YAML or JSON and reports every fault; this module only says what a
valid one is.
"""

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum

from app.core.expressions import Template
from app.core.identity import StepId
from app.core.json_value import JsonValue
from app.core.retry import RetryPolicy

SAFE_TO_RESEND = frozenset({"GET", "HEAD", "PUT", "DELETE"})
"""Methods whose repetition is harmless by definition (RFC 9110 section 9.2.2)."""


class OnUnknown(StrEnum):
    """What follows an attempt whose effect is unknown."""

    RESEND = "resend"
    """The same key and the same bytes again."""
    GIVE_UP = "give_up"
    """The step has failed, with effect unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTemplate:
    """An HTTP request with ``${{ }}`` in it.

    Attributes:
        method: upper case.
        url: renders to text, percent-encoded for its place.
        headers: (name, template) pairs; each renders to text.
        json: the JSON body; None where there is none.
        body: a text body instead; None where there is none.
    """

    method: str
    url: Template
    headers: tuple[tuple[str, Template], ...]
    json: Template | None
    body: Template | None

    @property
    def references(self) -> frozenset[tuple[str, ...]]:
        """What its expressions refer to, as ``Template.references``."""
        parts = (self.url, self.json, self.body, *(value for _, value in self.headers))
        return frozenset[tuple[str, ...]]().union(
            *(part.references for part in parts if part is not None)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a step: what is sent, and how answers and silence are treated.

    Attributes:
        request: the template, by connector.
        timeout: of one exchange.
        retry: limits of the attempts.
        idempotent: the tool honours ``Idempotency-Key``.
        on_unknown: of an action; a compensation is always resent.
        key_lifetime: how long the tool remembers a key; after it an uncertain attempt is never
            sent again.
        late_window: how long after its uncertain end an attempt may still take effect.
    """

    request: HttpTemplate
    timeout: dt.timedelta
    retry: RetryPolicy
    idempotent: bool
    on_unknown: OnUnknown
    key_lifetime: dt.timedelta
    late_window: dt.timedelta

    @property
    def may_be_asked_again(self) -> bool:
        """Whether sending the same bytes once more is harmless, so that it can settle a doubt."""
        return self.idempotent or self.request.method in SAFE_TO_RESEND


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An action and the call that undoes it."""

    id: StepId
    action: Call
    compensation: Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What a saga of this name and version does.

    Attributes:
        name: as published; 1 to 100 characters.
        version: from 1, given by the store; 0 while it is not published.
        description: for people.
        input_schema: JSON Schema 2020-12, or None for any input.
        deadline: the forward phase ends by then, counted from the start; None for none.
        steps: in order; a step waits for the one before it.
        output: what a completed saga returns; None for null.
        document: the document it was made from, as JSON.
    """

    name: str
    version: int
    description: str
    input_schema: JsonValue
    deadline: dt.timedelta | None
    steps: tuple[Step, ...]
    output: Template | None
    document: JsonValue

    def step(self, step: StepId) -> Step:
        """The step of that id; the caller knows that it exists."""
        for candidate in self.steps:
            if candidate.id == step:
                return candidate
        raise KeyError(step)
