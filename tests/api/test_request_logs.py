"""What is logged of requests that meet a bug of ours."""

import uuid

import httpx2
from structlog.testing import capture_logs

from app.core.callbacks import CallbackAddress, make_token
from app.core.identity import Direction, SagaId, StepId, TenantId


async def test_a_callback_that_meets_a_bug_is_logged_without_its_token(
    bare: httpx2.AsyncClient,
) -> None:
    """The route is told, not the path: whoever has a token may report."""
    address = CallbackAddress(
        tenant=TenantId(1),
        saga=SagaId(uuid.uuid4()),
        step=StepId("flight"),
        direction=Direction.ACTION,
        generation=0,
    )
    token = make_token(address, key_seed=bytes(16))
    with capture_logs() as logs:
        response = await bare.post(f"/v1/callbacks/{token}", json={"outcome": "succeeded"})

    assert 500 == response.status_code
    (told,) = logs
    assert ("request_failed", "/v1/callbacks/{token}") == (told["event"], told["route"])
    assert token not in str(told)
