"""What the Dockerfile promises, as far as it can be read without building it."""

import re
from pathlib import Path

from app.main import EXIT_SECONDS_MAX

DOCKERFILE = (Path(__file__).parents[1] / "Dockerfile").read_text(encoding="utf-8")


def test_the_documented_run_waits_for_a_whole_stop() -> None:
    """Docker is told to wait for longer than a stop takes; by itself it kills after 10 s."""
    waits = re.findall(r"^#   docker run .*--stop-timeout (\d+) ", DOCKERFILE, re.MULTILINE)

    assert len(waits) == 1
    assert int(waits[0]) > EXIT_SECONDS_MAX


def test_the_services_user_can_read_whatever_the_umask_of_the_checkout_was() -> None:
    """The build's last step begins by opening for reading what was copied from the checkout."""
    build, _ = DOCKERFILE.split("\nFROM ${BASE}\n")
    *_, last = re.findall(r"^RUN (.*)", build, re.MULTILINE)

    assert last.startswith("chmod -R a+rX,go-w . ")
