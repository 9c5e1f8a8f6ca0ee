"""Settings: environment variables, read once, frozen. ``main`` and ``cli`` alone import this."""

import ipaddress
import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


def _default_data_dir() -> Path:
    """Under the user's data directory; root's is closed to the user that Postgres runs as."""
    if os.geteuid() == 0:
        return Path("/var/lib/amends")
    return Path(platformdirs.user_data_dir("amends"))


class Settings(BaseSettings):
    """How this process runs. Each field is ``AMENDS_<NAME>`` in the environment."""

    model_config = SettingsConfigDict(env_prefix="AMENDS_", frozen=True, extra="ignore")

    host: str = "127.0.0.1"
    """Address to listen on. Loopback unless API keys are set: see ``api_keys``."""

    port: int = Field(default=8000, ge=0, le=65535)
    """TCP port; 0 lets the system choose."""

    database_url: str | None = None
    """A plain ``postgresql://`` URL. Without it the service starts its own Postgres."""

    data_dir: Path = Field(default_factory=_default_data_dir)
    """Where the service's own Postgres keeps its data."""

    api_keys: Annotated[tuple[str, ...], NoDecode] = ()
    """Comma-separated bearer keys. Empty: no key is asked for, and only loopback is served."""

    vars: Annotated[dict[str, Any], NoDecode] = Field(default_factory=dict)
    """A JSON object: ``vars.NAME`` in definitions. Every saga keeps the copy it started with."""

    sagas_dir: Path = Path("sagas")
    """Definitions that are published at start: every ``.yaml``, ``.yml`` and ``.json`` in it."""

    lease_seconds: float = Field(default=6.0, ge=0.5, le=300.0)
    """A replica that has not renewed for so long is taken over. Shorter recovers sooner; longer
    survives longer pauses of the process or the database. Temporal's default for a similar lease
    is 10 s; six give a takeover within ten of a death."""

    connections_per_host: int = Field(default=100, ge=1)
    """Concurrent calls to one tool's host, so that a slow tool cannot take them all."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The least that is logged."""

    log_format: Literal["text", "json"] = "text"
    """One line for people, or one JSON object a line for machines."""

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(key.strip() for key in value.split(",") if key.strip())
        return value

    @field_validator("api_keys")
    @classmethod
    def _long_enough(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for key in value:
            if len(key) < 16:
                message = "an API key has fewer than 16 characters; make one: openssl rand -hex 32"
                raise ValueError(message)
        return value

    @field_validator("vars", mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            parsed = json.loads(value or "{}")
        except ValueError as error:
            raise ValueError(f"AMENDS_VARS is not JSON: {error}") from error
        if not isinstance(parsed, dict):
            raise ValueError("AMENDS_VARS must be a JSON object")  # noqa: TRY004 - pydantic's
        return parsed

    @field_validator("database_url", mode="before")
    @classmethod
    def _plain(cls, value: object) -> object:
        if value == "":
            return None
        if isinstance(value, str) and not value.startswith(("postgresql://", "postgres://")):
            raise ValueError("AMENDS_DATABASE_URL must begin with postgresql://")
        return value

    @property
    def is_loopback(self) -> bool:
        """Whether ``host`` is reached from this machine alone."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
