"""Examples for the documentation; tests hold them to what the code accepts."""

from typing import Any

DEFINITION: dict[str, Any] = {
    "amends": 1,
    "name": "book_trip",
    "description": "A flight and a hotel; if one cannot be had, none is kept.",
    "input": {
        "type": "object",
        "required": ["city"],
        "properties": {"city": {"type": "string"}},
    },
    "steps": [
        {
            "id": "flight",
            "action": {
                "http": {
                    "method": "POST",
                    "url": "${{ vars.travel }}/flights",
                    "json": {"city": "${{ input.city }}"},
                },
                "idempotent": True,
            },
            "compensation": {
                "http": {
                    "method": "DELETE",
                    "url": "${{ vars.travel }}/flights/${{ action.output.id }}",
                }
            },
        }
    ],
    "output": {"flight": "${{ steps.flight.output.id }}"},
}

DEFINITION_YAML = """\
amends: 1
name: book_trip
description: A flight and a hotel; if one cannot be had, none is kept.
input: {type: object, required: [city], properties: {city: {type: string}}}
steps:
  - id: flight
    action:
      http:
        method: POST
        url: "${{ vars.travel }}/flights"
        json: {city: "${{ input.city }}"}
      idempotent: true
    compensation:
      http: {method: DELETE, url: "${{ vars.travel }}/flights/${{ action.output.id }}"}
output: {flight: "${{ steps.flight.output.id }}"}
"""

START: dict[str, Any] = {
    "definition": "book_trip",
    "input": {"city": "Rome"},
    "business_key": "order-4711",
    "labels": {"env": "prod"},
    "deadline": "2h",
}

VERB: dict[str, Any] = {"reason": "the customer called"}

RESOLVE: dict[str, Any] = {
    "reason": "the airline says on the phone that it is booked",
    "effect": "done",
    "output": {"id": "F1"},
    "evidence": {"ticket": "4711"},
}

CALLBACK: dict[str, Any] = {"outcome": "succeeded", "output": {"id": "C1"}}

PLAN: dict[str, Any] = {
    "possible": True,
    "refused": None,
    "undos": [
        {"step": "charge", "effect": "unknown", "how": "settle_first", "reason": None},
        {"step": "flight", "effect": "done", "how": "compensate", "reason": None},
    ],
}

SAGA: dict[str, Any] = {
    "id": "0198c0de-7c1b-7d7a-9f43-3c6f0a5d2b11",
    "definition": {"name": "book_trip", "version": 3},
    "status": "compensated",
    "revision": 9,
    "business_key": "order-4711",
    "labels": {"env": "prod"},
    "input": {"city": "Rome"},
    "output": None,
    "failure": {
        "cause": "step_failed",
        "step": "charge",
        "code": "refused",
        "http_status": 402,
        "message": "the tool answered 402: card declined",
    },
    "steps": [
        {
            "id": "flight",
            "status": "compensated",
            "effect": "none",
            "attempts": 1,
            "output": {"id": "F1"},
            "error": None,
            "idempotency_key": "5e2a6c1e-8f0d-8b1a-a4c1-7f3d0c9b8a21",
            "progress": None,
            "compensation": {
                "status": "succeeded",
                "attempts": 2,
                "error": None,
                "idempotency_key": "0b7d3f64-2c55-8e0f-9d3e-1a2b3c4d5e6f",
            },
            "started_at": "2026-12-01T09:30:00.120000Z",
            "finished_at": "2026-12-01T09:30:00.310000Z",
            "compensated_at": "2026-12-01T09:30:01.870000Z",
        },
        {
            "id": "charge",
            "status": "failed",
            "effect": "none",
            "attempts": 1,
            "output": None,
            "error": {
                "code": "refused",
                "message": "the tool answered 402: card declined",
                "http_status": 402,
            },
            "idempotency_key": "c1f0a7f2-61c4-8d02-8c7e-0d9e8f7a6b5c",
            "progress": None,
            "compensation": None,
            "started_at": "2026-12-01T09:30:00.310000Z",
            "finished_at": "2026-12-01T09:30:00.540000Z",
            "compensated_at": None,
        },
    ],
    "residue": [],
    "waiting_for": [],
    "stuck": None,
    "paused": None,
    "pending": None,
    "terminated": None,
    "verbs": [],
    "attention": False,
    "created_at": "2026-12-01T09:30:00.120000Z",
    "updated_at": "2026-12-01T09:30:01.870000Z",
    "finished_at": "2026-12-01T09:30:01.870000Z",
}

PROBLEM: dict[str, Any] = {
    "type": "urn:amends:problem:invalid_request",
    "title": "Invalid request",
    "status": 422,
    "detail": "the request has 1 fault(s); the first is at 'deadline': '30': it is not a duration",
    "code": "invalid_request",
    "effect": "none",
    "errors": [
        {
            "path": "deadline",
            "message": "'30': it is not a duration",
            "accepted": "250ms, 1.5s, 10m, 2h or 3d",
        }
    ],
}
