"""The release that runs."""

from importlib import metadata
from typing import Final

DISTRIBUTION: Final = "amends"


def installed_version() -> str:
    """The version of the installed distribution; ``0`` in a checkout that was never installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "0"
