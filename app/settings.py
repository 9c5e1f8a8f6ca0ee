"""Settings: environment variables, read once, frozen. ``main`` and ``cli`` alone import this."""

import ipaddress
import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

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

    model_config = SettingsConfigDict(
        env_prefix="AMENDS_",
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,  # a secret may be in it
    )

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

    secrets: Annotated[dict[str, str], NoDecode] = Field(default_factory=dict, repr=False)
    """A JSON object of texts: ``secrets.NAME`` in the requests of definitions. They are put in as a
    request is sent, and stored nowhere: every replica that runs an engine needs them."""

    sagas_dir: Path = Path("sagas")
    """Definitions that are published at start: every ``.yaml``, ``.yml`` and ``.json`` in it; and
    the functions that definitions may call, in its ``.py`` modules."""

    public_url: str | None = None
    """Where tools reach this service, as ``https://amends.example``: callback URLs begin with it.
    Without it they begin with the host and port that it listens on."""

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
        return _read_object(value, name="AMENDS_VARS")

    @field_validator("secrets", mode="before")
    @classmethod
    def _parse_secrets(cls, value: object) -> object:
        parsed = _read_object(value, name="AMENDS_SECRETS")
        if not isinstance(parsed, dict):
            return parsed
        for name, secret in parsed.items():
            if not (name.isidentifier() and name.isascii() and len(name) <= 64):
                raise ValueError(f"AMENDS_SECRETS has a name that is no identifier: {name!r}")
            if not isinstance(secret, str) or not secret:
                message = f"AMENDS_SECRETS: {name!r} must be a text"  # never what it is
                raise ValueError(message)
        return parsed

    @field_validator("database_url", mode="before")
    @classmethod
    def _plain(cls, value: object) -> object:
        if value == "":
            return None
        if isinstance(value, str) and not value.startswith(("postgresql://", "postgres://")):
            raise ValueError("AMENDS_DATABASE_URL must begin with postgresql://")
        return value

    @field_validator("public_url", mode="before")
    @classmethod
    def _absolute(cls, value: object) -> object:
        if not isinstance(value, str) or value == "":
            return None
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
            message = "AMENDS_PUBLIC_URL must be an absolute http or https URL without a query"
            raise ValueError(message)
        return value.rstrip("/")

    @property
    def is_loopback(self) -> bool:
        """Whether ``host`` is reached from this machine alone."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def _read_object(value: object, *, name: str) -> object:
    """A JSON object out of an environment variable."""
    if not isinstance(value, str):
        return value
    try:
        parsed = json.loads(value or "{}")
    except ValueError:
        # Not what is wrong with it: the message would quote it.
        raise ValueError(f"{name} is not JSON") from None
    if not isinstance(parsed, dict):
        raise ValueError(f"{name} must be a JSON object")  # noqa: TRY004 - pydantic's
    return parsed
