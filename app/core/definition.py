"""A definition: the immutable, versioned template of a saga, parsed and compiled.

``document`` makes one out of YAML or JSON and reports every fault; this module only says what a
valid one is.
"""

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from app.core.expressions import Template
from app.core.graph import Graph
from app.core.identity import Direction, StepId
from app.core.json_value import JsonValue
from app.core.retry import RetryPolicy

SAFE_TO_RESEND = frozenset({"GET", "HEAD", "PUT", "DELETE"})
"""Methods whose repetition is harmless by definition (RFC 9110 section 9.2.2)."""


class OnUnknown(StrEnum):
    """What follows an attempt whose effect is unknown."""

    RESEND = "resend"
    """The same key and the same bytes again."""
    VERIFY = "verify"
    """The step's ``verify`` is asked."""
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
class FunctionTemplate:
    """A call of a Python function with ``${{ }}`` in its arguments.

    Attributes:
        function: ``module.function``.
        arguments: renders to an object, by parameter name.
    """

    function: str
    arguments: Template

    @property
    def references(self) -> frozenset[tuple[str, ...]]:
        """What its expressions refer to, as ``Template.references``."""
        return self.arguments.references


type RequestTemplate = HttpTemplate | FunctionTemplate
"""What is sent, by connector."""


class Means(StrEnum):
    """What an answer means where a definition says so itself."""

    SUCCEEDED = "succeeded"
    REFUSED = "refused"
    RETRY = "retry"
    UNKNOWN = "unknown"
    WAITING = "waiting"
    """Accepted: the outcome comes by callback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A rule that goes before the table of ``outcome``, for answers of a given kind.

    Attributes:
        status: that the answer must have; None for any.
        when: a condition over ``response``; None if the status says it all.
        means: what such an answer means.
    """

    status: int | None
    when: Template | None
    means: Means


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """The answer only acknowledges; the outcome comes by webhook.

    Attributes:
        within: from the acknowledgement, or from the last ``in_progress``.
    """

    within: dt.timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """A question to the tool: did the call take effect?

    Attributes:
        call: what is sent; it has no effect itself.
        done: a condition over ``response`` and what a compensation sees: it took effect.
        none: the same: it did not.
        output: what the call returned, out of the answer; None for null.
    """

    call: "Call"
    done: Template
    none: Template
    output: Template | None


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
        responses: rules for answers; the first that fits holds.
        callback: set if the answer only acknowledges.
        verify: the question about this call's effect; None if nobody can be asked.
    """

    request: RequestTemplate
    timeout: dt.timedelta
    retry: RetryPolicy
    idempotent: bool
    on_unknown: OnUnknown
    key_lifetime: dt.timedelta
    late_window: dt.timedelta
    responses: tuple[Response, ...] = ()
    callback: Callback | None = None
    verify: Verify | None = None

    @property
    def may_be_asked_again(self) -> bool:
        """Whether sending the same bytes once more is harmless, so that it can settle a doubt."""
        return self.idempotent or self.method in SAFE_TO_RESEND

    @property
    def method(self) -> str | None:
        """Of an HTTP request; None for any other."""
        return self.request.method if isinstance(self.request, HttpTemplate) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An action, the call that undoes it, and when it is its turn.

    Attributes:
        needs: the steps that it waits for.
        when: a condition; the step is skipped where it is false. None for always.
        compensation: None exactly for ``read_only`` and ``irreversible`` steps.
        read_only: there is nothing to undo.
        irreversible: what it did stays, and is residue.
        pivot: the point of no return: once it is done, the saga only goes forward.
        optional: the saga goes on without it.
        default: its output then; None for null.
    """

    id: StepId
    action: Call
    compensation: Call | None
    needs: tuple[StepId, ...] = ()
    when: Template | None = None
    read_only: bool = False
    irreversible: bool = False
    pivot: bool = False
    optional: bool = False
    default: Template | None = None

    def find_call(self, direction: Direction) -> Call | None:
        """One of the step's calls; None if it has no such call."""
        subject = direction.subject
        if subject is not None:
            asked = self.find_call(subject)
            verify = None if asked is None else asked.verify
            return None if verify is None else verify.call
        return self.action if direction is Direction.ACTION else self.compensation

    def call(self, direction: Direction) -> Call:
        """One of the step's calls; the caller knows that it exists."""
        call = self.find_call(direction)
        assert call is not None, (self.id, direction)
        return call


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What a saga of this name and version does.

    Attributes:
        name: as published; 1 to 100 characters.
        version: from 1, given by the store; 0 while it is not published.
        description: for people.
        input_schema: JSON Schema 2020-12, or None for any input.
        deadline: the forward phase ends by then, counted from the start; None for none.
        steps: in the order of the file.
        graph: which of them wait for which.
        output: what a completed saga returns; None for null.
        document: the document it was made from, as JSON.
    """

    name: str
    version: int
    description: str
    input_schema: JsonValue
    deadline: dt.timedelta | None
    steps: tuple[Step, ...]
    graph: Graph
    output: Template | None
    document: JsonValue
    _by_id: Mapping[StepId, Step] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_id", {step.id: step for step in self.steps})

    def step(self, step: StepId) -> Step:
        """The step of that id; the caller knows that it exists."""
        return self._by_id[step]

    @property
    def in_order(self) -> Iterator[Step]:
        """The steps, each after those that it needs."""
        return map(self.step, self.graph.order)

    @property
    def pivot(self) -> Step | None:
        """The point of no return; None if there is none."""
        return next((step for step in self.steps if step.pivot), None)
