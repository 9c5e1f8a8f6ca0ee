"""What a saga is told, and what it answers to the question what undoing it would do."""

from typing import Literal, Self

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from app.core.json_value import JsonValue
from app.core.plan import How, RollbackPlan
from app.core.saga import Effect
from app.schemas.shapes import AnyJson, Reason, RequestShape, Shape, refused


class VerbRequest(RequestShape):
    """Why a saga is told something; kept for ever."""

    reason: Reason


class ResolveRequest(RequestShape):
    """What a person found out about a step, and why they are sure; kept for ever."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"effect": {"const": "none"}}},
            "then": {"properties": {"output": False}},
        }
    )

    reason: Reason
    effect: Literal["done", "none"] = Field(
        description="Whether the step's effect exists in the outside world."
    )
    output: AnyJson = Field(
        default=None, description="What the action returned, if that is known; only with `done`."
    )
    evidence: AnyJson = Field(default=None, description="What it rests on; any JSON.")

    @field_validator("output")
    @classmethod
    def _check_output(cls, output: JsonValue, info: ValidationInfo) -> JsonValue:
        if info.data.get("effect") == "none":
            message = "what did not take effect has no output"
            raise refused("output_of_none", message, accepted="'output' with 'effect: done' only")
        return output


class PlannedUndo(Shape):
    """What would be done about one step."""

    step: str
    effect: Effect
    how: How
    reason: str | None = Field(description="Why it would stay, or the saga get stuck at it.")


class RollbackPlanResponse(Shape):
    """What undoing the saga as it is now would do."""

    possible: bool
    refused: str | None = Field(description="Why the saga cannot be undone.")
    undos: list[PlannedUndo] = Field(
        description="Every step of which something exists, or may exist, in the order of undoing."
    )

    @classmethod
    def of(cls, plan: RollbackPlan) -> Self:
        """A plan of the core."""
        return cls(
            possible=plan.refused is None,
            refused=plan.refused,
            undos=[
                PlannedUndo(step=each.step, effect=each.effect, how=each.how, reason=each.reason)
                for each in plan.undos
            ],
        )
