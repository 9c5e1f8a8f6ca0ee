"""What acts: claims sagas, sends their calls, and keeps the lease that allows it."""

from app.engine.engine import Engine
from app.engine.heart import Heart

__all__ = ["Engine", "Heart"]
