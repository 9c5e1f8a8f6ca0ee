"""Whether the service lives, and whether it can do its work. Open to everybody."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field

from app.api.replies import reply
from app.schemas.shapes import Shape

router = APIRouter(prefix="/health", tags=["health"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether this replica can do its work now.

    Attributes:
        reasons: why not, for people; empty if it can.
    """

    is_ready: bool
    reasons: tuple[str, ...] = ()


type AskReadiness = Callable[[], Awaitable[Readiness]]


class LiveResponse(Shape):
    """The process answers."""

    status: Literal["live"] = "live"


class ReadyResponse(Shape):
    """Whether requests may be sent here."""

    status: Literal["ready", "not_ready"]
    reasons: list[str] = Field(description="Why it is not ready.")


@router.get(
    "/live",
    operation_id="get_liveness",
    summary="Is the process alive?",
    response_description="It is.",
    response_model=LiveResponse,
)
async def get_liveness() -> Response:
    """Answers 200 as long as the process answers at all; restart it if it does not."""
    return reply(LiveResponse())


@router.get(
    "/ready",
    operation_id="get_readiness",
    summary="Can this replica do its work?",
    response_description="It can.",
    response_model=ReadyResponse,
    responses={503: {"model": ReadyResponse, "description": "Not now; the reasons say why."}},
)
async def get_readiness(request: Request) -> Response:
    """Answers 200 if requests may be sent to this replica, else 503 with the reasons."""
    ask: AskReadiness = request.app.state.readiness
    readiness = await ask()
    status = HTTPStatus.OK if readiness.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
    word: Literal["ready", "not_ready"] = "ready" if readiness.is_ready else "not_ready"
    return reply(ReadyResponse(status=word, reasons=list(readiness.reasons)), status=status)
