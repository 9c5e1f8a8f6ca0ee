"""Sagas as they go over the wire, and what is asked of them. DESIGN.md section 7."""

import datetime as dt
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from app.core.identity import Direction
from app.core.language.durations import DURATION_MAX, EXAMPLES, parse_duration
from app.core.residue import Why
from app.core.saga import (
    CallStatus,
    Cause,
    Code,
    Effect,
    Question,
    SagaStatus,
    StepStatus,
    Wish,
)
from app.schemas.shapes import (
    LABELS_MAX,
    PAGE_ITEMS,
    PAGE_ITEMS_MAX,
    TEXT_CHARACTERS_MAX,
    TIME_ACCEPTED,
    VERSION_MAX,
    AnyJson,
    BusinessKey,
    DefinitionName,
    LabelName,
    LabelValue,
    QueryShape,
    RequestShape,
    Shape,
    Time,
    refused,
)


class DefinitionReference(Shape):
    """The definition of a saga."""

    name: str
    version: int | None = Field(description="Null for a document that came with the request.")


class CallError(Shape):
    """The last thing that went wrong with a call."""

    code: Code
    message: str
    http_status: int | None = Field(description="Of the tool's answer, if one came.")


class Failure(Shape):
    """Why the saga is undone, or could not go on."""

    cause: Cause
    step: str | None
    code: Code
    http_status: int | None
    message: str


class Compensation(Shape):
    """The call that undoes a step; there once it has begun."""

    status: CallStatus
    attempts: int
    error: CallError | None
    idempotency_key: str


class StepResponse(Shape):
    """A step, in both directions."""

    id: str
    status: StepStatus
    effect: Effect = Field(
        description=(
            "What of the step exists in the outside world: surely nothing, surely something, or "
            "not known, as while a request is out."
        )
    )
    attempts: int = Field(description="Requests sent for its action.")
    output: AnyJson = Field(description="What the action returned.")
    error: CallError | None
    idempotency_key: str | None
    progress: AnyJson = Field(description="What the tool last told of its work by callback.")
    compensation: Compensation | None
    started_at: dt.datetime | None
    finished_at: dt.datetime | None
    compensated_at: dt.datetime | None


class Residue(Shape):
    """What a saga that is over has left in the outside world."""

    step: str
    effect: Effect
    reason: Why = Field(
        description=(
            "`irreversible`: the definition says so. `skipped`: a person renounced its undo. "
            "`terminated`: the saga was ended without undo. `late_success`: it was found after the "
            "end. The verb `undo` undoes either. `unknown_effect`: it may exist, and the saga was "
            "completed without it."
        )
    )
    undo_saga: str | None = Field(description="The saga that undoes it after all.")


type WaitsFor = Literal["answer", "callback", "retry", "quiet", "engine", "person"]


class Waiting(Shape):
    """What a saga waits for, and until when at the most."""

    what: WaitsFor = Field(
        description=(
            "`answer`: to a request that is out. `callback`: the tool's. `retry`: the time of the "
            "next attempt. `quiet`: the moment from which an unanswered request can have no effect "
            "any more. `engine`: one that takes it up. `person`: `verbs` says what may be done."
        )
    )
    step: str | None
    direction: Direction | None
    until: dt.datetime | None


class Stuck(Shape):
    """The question that a person has to answer."""

    step: str | None
    question: Question
    message: str
    verbs: list[str] = Field(description="What the saga can be told now.")


class Paused(Shape):
    """Who paused the saga, and where it goes on."""

    actor: str
    reason: str
    resumes: SagaStatus


class Pending(Shape):
    """What is to happen as soon as it can: once the pivot's outcome is known, or nothing is out."""

    wish: Wish
    actor: str | None = Field(description="Who wants it; null for the deadline.")
    reason: str | None
    lapsed: bool = Field(description="The pivot was passed, so that it came to nothing.")


class Terminated(Shape):
    """Who ended the saga without undo, and why."""

    actor: str
    reason: str


class SagaResponse(Shape):
    """A saga with its steps, in the order of its definition."""

    id: str
    definition: DefinitionReference
    status: SagaStatus
    revision: int = Field(description="Grows with every change; also the ETag.")
    business_key: str | None
    labels: dict[str, str]
    input: AnyJson
    output: AnyJson
    failure: Failure | None = Field(
        description="Why it is undone, or cannot go on; null for one that a person has terminated."
    )
    steps: list[StepResponse]
    residue: list[Residue] = Field(description="Empty until the saga is over.")
    waiting_for: list[Waiting] = Field(
        description="What moves it next, and calls that are out; empty once it is over."
    )
    stuck: Stuck | None = Field(description="Set exactly while the status is `stuck`.")
    paused: Paused | None = Field(description="Set exactly while the status is `paused`.")
    pending: Pending | None
    terminated: Terminated | None = Field(description="Set exactly if the status is `terminated`.")
    verbs: list[str] = Field(
        description=(
            "What the saga can be told now: `POST /v1/sagas/{id}/{verb}` with a reason; `resolve`, "
            "`skip` and `undo` are about a step: `/v1/sagas/{id}/steps/{step}/{verb}`, with that "
            "of `stuck`, or one of `residue`."
        )
    )
    attention: bool = Field(
        description="A person should look at it: it is stuck, or something was found after the end."
    )
    created_at: dt.datetime
    updated_at: dt.datetime
    finished_at: dt.datetime | None


class SagaSummary(Shape):
    """A saga in a list."""

    id: str
    definition: DefinitionReference
    status: SagaStatus
    revision: int
    business_key: str | None
    labels: dict[str, str]
    failure: Failure | None
    attention: bool
    created_at: dt.datetime
    updated_at: dt.datetime
    finished_at: dt.datetime | None


class SagaPage(Shape):
    """Sagas, newest first."""

    items: list[SagaSummary]
    next_cursor: str | None = Field(description="For the next page; null on the last one.")


def _read_deadline(value: Any) -> Any:  # noqa: ANN401 - whatever was sent
    if value is None:
        return None
    duration = parse_duration(value) if isinstance(value, str) else None
    if duration is None:
        raise refused("not_a_duration", "it is not a duration", accepted=EXAMPLES)
    if not dt.timedelta(0) < duration <= DURATION_MAX:
        accepted = f"more than 0s and at most {DURATION_MAX.days}d"
        raise refused("duration_out_of_range", "it is too short or too long", accepted=accepted)
    return duration


_Deadline = Annotated[
    dt.timedelta | None,
    BeforeValidator(_read_deadline),
    WithJsonSchema({"type": ["string", "null"], "examples": ["250ms", "10m", "2h"]}),
]


def _kind_of_definition(value: Any) -> str | None:  # noqa: ANN401 - whatever was sent
    """Which of the two was meant: then the faults are told of that one alone."""
    if isinstance(value, str):
        return NAME_TAG
    return DOCUMENT_TAG if isinstance(value, dict) else None


NAME_TAG = "[name]"
DOCUMENT_TAG = "[document]"

_Definition = Annotated[
    Annotated[DefinitionName, Tag(NAME_TAG)] | Annotated[dict[str, AnyJson], Tag(DOCUMENT_TAG)],
    Discriminator(
        _kind_of_definition,
        custom_error_type="not_a_definition",
        custom_error_message="{message}",
        custom_error_context={
            "message": "it is neither a name nor a document",
            "accepted": "the name of a published definition as text, or a whole document",
        },
    ),
]


class StartSagaRequest(RequestShape):
    """What a saga is to be started with."""

    definition: _Definition = Field(
        description=(
            "The name of a published definition, or a whole document (`GET /v1/definition-schema`)."
        )
    )
    version: int | None = Field(
        default=None,
        ge=1,
        le=VERSION_MAX,
        description="Of a published definition; null for the latest.",
    )
    input: AnyJson = Field(default=None, description="Must fit the definition's `input` schema.")
    business_key: BusinessKey | None = Field(
        default=None,
        description=(
            "What the saga is about, as an order number: while it is live, no other saga of this "
            "definition may have it."
        ),
    )
    labels: dict[LabelName, LabelValue] = Field(
        default_factory=dict, max_length=LABELS_MAX, description="For finding it again."
    )
    deadline: _Deadline = Field(
        default=None,
        description="By then the forward phase ends, or the saga is undone; a duration.",
    )

    @field_validator("version")
    @classmethod
    def _check_version(cls, version: int | None, info: ValidationInfo) -> int | None:
        if version is not None and isinstance(info.data.get("definition"), dict):
            message = "a document that comes with the request has no version"
            raise refused("version_of_document", message, accepted="null, or no 'version' at all")
        return version


class SagaQuery(QueryShape):
    """Which sagas to list."""

    status: SagaStatus | None = None
    definition: DefinitionName | None = None
    business_key: BusinessKey | None = None
    labels: dict[LabelName, LabelValue] = Field(
        default_factory=dict,
        alias="label.*",
        max_length=LABELS_MAX,
        description="`label.env=prod`: only sagas with that label. All that are given must match.",
    )
    created_after: Time | None = Field(default=None, description=TIME_ACCEPTED)
    attention: bool | None = Field(
        default=None,
        description=(
            "Only sagas that a person should look at: stuck ones, and those of which something was "
            "found after the end. Not paused ones: somebody wanted that."
        ),
    )
    limit: int = Field(default=PAGE_ITEMS, ge=1, le=PAGE_ITEMS_MAX)
    cursor: str | None = Field(
        default=None, max_length=TEXT_CHARACTERS_MAX, description="`next_cursor` of a page before."
    )

    @model_validator(mode="before")
    @classmethod
    def _gather_labels(cls, given: dict[str, str]) -> dict[str, Any]:
        prefix = "label."
        labels = {
            name.removeprefix(prefix): value
            for name, value in given.items()
            if name.startswith(prefix)
        }
        others = {name: value for name, value in given.items() if not name.startswith(prefix)}
        return {**others, "label.*": labels}
