"""Query parameters: from text to a shape. Unknown ones are refused, and so is one given twice."""

from collections import Counter

from fastapi import Request
from pydantic import BaseModel

from app.api.validation import validated
from app.core.errors import Fault, InvalidRequest


def read_query[ShapeT: BaseModel](request: Request, shape: type[ShapeT]) -> ShapeT:
    """The query parameters as a shape.

    Raises:
        InvalidRequest: with every fault.
    """
    given = request.query_params.multi_items()
    counts = Counter(name for name, _ in given)
    faults = [
        Fault(path=name, message=f"{name!r} is given {count} times", accepted="it once")
        for name, count in counts.items()
        if count > 1
    ]
    if faults:
        raise InvalidRequest(faults)
    return validated(shape, dict(given))
