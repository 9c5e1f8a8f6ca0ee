"""What acts: claims sagas, sends their calls, and keeps the lease that allows it."""

from app.engine.engine import Engine
from app.engine.gauges import show_gauges
from app.engine.heart import Heart
from app.engine.surveyor import Surveyor

__all__ = ["Engine", "Heart", "Surveyor", "show_gauges"]
