"""Small parts of an entry's JSON: times, outputs, problems."""

import datetime as dt
from typing import Any

from app.core.saga import (
    Code,
    Output,
    Problem,
)

type Json = dict[str, Any]
"""A JSON object on its way in or out; typed again by those who read it."""

_RESTING: tuple[object, ...] = (None, False, 0, "", [], {})


def slim(fields: Json) -> Json:
    """Leave out what has its resting value."""
    return {name: value for name, value in fields.items() if value not in _RESTING}


def read_time(text: str | None) -> dt.datetime | None:
    """A time, if there is one."""
    return None if text is None else dt.datetime.fromisoformat(text)


def read_needed_time(text: str) -> dt.datetime:
    """A time that must be there."""
    return dt.datetime.fromisoformat(text)


def dump_output(output: Output | None) -> Json | None:
    """An output, wrapped: null, false and 0 are outputs too."""
    return None if output is None else {"value": output.value}


def load_output(fields: Json | None) -> Output | None:
    """The output that ``dump_output`` wrote."""
    return None if fields is None else Output(value=fields["value"])


def dump_problem(problem: Problem) -> Json:
    """A problem, as calls and failures store it."""
    return slim(
        {"code": problem.code, "message": problem.message, "http_status": problem.http_status}
    )


def load_problem(fields: Json) -> Problem:
    """The problem that ``dump_problem`` wrote."""
    return Problem(
        code=Code(fields["code"]),
        message=fields.get("message", ""),
        http_status=fields.get("http_status"),
    )
