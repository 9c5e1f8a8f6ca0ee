"""Logs: structured, a constant event name with fields; never payloads or secrets.

``docs/operations.md`` lists the events. What libraries log takes the same way. Of an exception the
frames and the type are logged, never the message: messages quote the very values at hand, from the
row that a database refuses to the saga that an assertion is about.
"""

import logging
import sys
import traceback
from typing import override

import structlog

log = structlog.get_logger(__name__)


def configure_logs(*, level: str, as_json: bool) -> None:
    """Set up logging for the process, once, at its start.

    Args:
        level: ``DEBUG``, ``INFO``, ``WARNING`` or ``ERROR``.
        as_json: one JSON object a line, for machines; else lines for people.
    """
    renderer: structlog.typing.Processor
    if as_json:
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.ExceptionRenderer(_show_exception),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[LibraryLogs()], level=logging.WARNING)


class LibraryLogs(logging.Handler):
    """Passes on what libraries log: whose it is, and the first line of what it says.

    The values that belong into that line are left out, for nobody knows what they are.
    """

    @override
    def emit(self, record: logging.LogRecord) -> None:
        first_line = str(record.msg).partition("\n")[0]
        log.log(
            record.levelno,
            "library_logged",
            library=record.name,
            message=first_line,
            exc_info=record.exc_info if record.exc_info and record.exc_info[1] else None,
        )


def _show_exception(exc_info: structlog.typing.ExcInfo) -> str:
    return "\n".join(_lines_of(exc_info[1]))


def _lines_of(error: BaseException, *, seen: frozenset[int] = frozenset()) -> list[str]:
    """An exception with what led to it: its frames, then its type."""
    lines = []
    seen |= {id(error)}
    led_here = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if led_here is not None and id(led_here) not in seen:
        lines += [*_lines_of(led_here, seen=seen), "which led to:"]
    frames = traceback.format_tb(error.__traceback__)
    lines += [line for frame in frames for line in frame.rstrip().split("\n")]
    lines.append(_name_of(error))
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            lines += [f"  | {line}" for line in _lines_of(each, seen=seen)]
    return lines


def _name_of(error: BaseException) -> str:
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return f"{name}: [Errno {error.errno}] {error.strerror}"
    return name
