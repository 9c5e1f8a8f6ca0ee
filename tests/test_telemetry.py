"""Logs tell what happened and where, and quote nothing that was being worked on.

Logging is set up once a process, so each test has a process of its own.
"""

import json
import subprocess
import sys
import textwrap

import pytest

SECRET = "sesame-4242"

PREFACE = f"""
import logging
import structlog
from app.telemetry import configure_logs

SECRET = {SECRET!r}

def fail():
    body = {{"card": SECRET}}
    try:
        int(SECRET)
    except ValueError:
        assert body is None, body

log = structlog.get_logger()
"""

FORMATS = pytest.mark.parametrize("form", ["json", "text"])


def logged(form: str, script: str) -> str:
    """What a process writes that logs in this format: the preface, then the script."""
    setup = f'configure_logs(level="INFO", as_json={form == "json"})\n'
    program = PREFACE + setup + textwrap.dedent(script)
    command = [sys.executable, "-W", "error", "-c", program]
    ended = subprocess.run(command, capture_output=True, check=True, text=True)
    assert ended.stdout == ""
    return ended.stderr


@FORMATS
def test_an_exception_is_told_without_its_message(form: str) -> None:
    """Where it happened and of what type it is, but no value, whatever led to it."""
    written = logged(
        form,
        """
        try:
            fail()
        except AssertionError:
            log.exception("attempt_crashed", step="flight")
        """,
    )

    assert "attempt_crashed" in written
    assert "in fail" in written
    assert "AssertionError" in written
    assert "ValueError" in written
    assert SECRET not in written


@FORMATS
def test_a_group_of_exceptions_is_told_without_messages(form: str) -> None:
    """Each of a group is named, and none is quoted but for what the system says."""
    written = logged(
        form,
        """
        error = ExceptionGroup(SECRET, [KeyError(SECRET), ConnectionRefusedError(111, "refused")])
        log.warning("function_raised", exc_info=error)
        """,
    )

    assert "KeyError" in written
    assert "ConnectionRefusedError: [Errno 111] refused" in written
    assert SECRET not in written


@FORMATS
def test_exceptions_that_led_to_each_other_are_told_once(form: str) -> None:
    """A circle of causes does not keep the log from being written."""
    written = logged(
        form,
        """
        first, second = KeyError(SECRET), TypeError(SECRET)
        first.__cause__, second.__cause__ = second, first
        log.warning("function_raised", exc_info=first)
        """,
    )

    assert 1 == written.count("TypeError")


@FORMATS
def test_what_libraries_log_takes_the_same_way(form: str) -> None:
    """A library's warning becomes an event of ours, without the values that belong into it."""
    written = logged(
        form,
        """
        library = logging.getLogger("uvicorn.error")
        library.warning("cannot read %s\\nfrom %s", SECRET, SECRET)
        library.info("not worth a line: %s", SECRET)
        library.exception("odd")  # without one at hand
        """,
    )

    assert 2 == written.count("library_logged")
    assert "uvicorn.error" in written
    assert "cannot read %s" in written
    assert "odd" in written
    assert SECRET not in written


def test_a_json_line_is_one_object() -> None:
    """A machine reads event, level and fields, and a traceback in the same line."""
    written = logged(
        "json",
        """
        try:
            fail()
        except AssertionError:
            log.exception("record_crashed", saga_id="s1")
        """,
    )

    (line,) = written.splitlines()
    told = json.loads(line)
    assert ("record_crashed", "error", "s1") == (told["event"], told["level"], told["saga_id"])
    assert "in fail" in told["exception"]
