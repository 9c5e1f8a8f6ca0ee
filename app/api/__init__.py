"""The REST front door. A route parses, calls one operation, replies."""

from app.api.application import create_api
from app.api.routes.health import Readiness

__all__ = ["Readiness", "create_api"]
