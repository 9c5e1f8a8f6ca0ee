"""Errors: the caller's mistakes apart from ours.

::

    AmendsError
    ├── CallerError                  the request was wrong; repeating it changes nothing
    │   ├── InvalidDefinition        every fault of a definition, each with its path
    │   ├── InvalidRequest           every fault of an input or a parameter
    │   ├── NotFound                 no such definition, version or saga
    │   ├── PayloadTooLarge          more bytes than the limit
    │   ├── KeyReused                the Idempotency-Key came with another body
    │   ├── BusinessKeyTaken         a live saga has this business key
    │   ├── VerbRefused              the saga's state does not allow it
    │   └── CallbackContradicts      a tool has reported something else before
    └── ServiceError                 ours; the same request may succeed later
        ├── StoreUnavailable         the database does not answer
        ├── SchemaBehind             the database's schema is not this release's
        ├── CannotMigrate            a transaction pooler stands between
        ├── NewerFormat              a newer release has moved the saga
        ├── Fenced                   this incarnation was revoked; it may write nothing
        └── RowRefused               the database refuses this saga's row
    IllegalEvent                     a bug of ours: an event that this state cannot meet

A class takes facts and builds its own message; ``code`` is stable. HTTP status codes are known to
``api.problems`` alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of a document.

    Attributes:
        path: of the offending field, as ``steps[0].action.http.url``; empty for the whole.
        message: what is wrong, with the value.
        accepted: what would be right.
    """

    path: str
    message: str
    accepted: str


class AmendsError(Exception):
    """Any error that has a code and a message fit for whoever meets it."""

    code = "error"


class CallerError(AmendsError):
    """The request was wrong."""

    code = "invalid_request"


class ServiceError(AmendsError):
    """We could not do it, though the request may be right."""

    code = "service_error"


class InvalidDefinition(CallerError):
    """A definition has faults; all of them are here."""

    code = "invalid_definition"

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        first = self.faults[0]
        super().__init__(
            f"the definition has {len(self.faults)} fault(s); "
            f"the first is at {first.path or 'the top'!r}: {first.message}"
        )


class InvalidRequest(CallerError):
    """An input or a parameter has faults; all of them are here."""

    code = "invalid_request"

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        first = self.faults[0]
        super().__init__(
            f"the request has {len(self.faults)} fault(s); "
            f"the first is at {first.path or 'the top'!r}: {first.message}"
        )


class NotFound(CallerError):
    """There is no such thing."""

    def __init__(self, *, kind: str, name: object) -> None:
        self.code = f"{kind}_not_found"
        super().__init__(f"there is no {kind} {str(name)!r}")


class PayloadTooLarge(CallerError):
    """More bytes than the limit."""

    code = "payload_too_large"

    def __init__(self, *, what: str, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        super().__init__(f"the {what} is larger than {bytes_max} bytes, the limit")


class KeyReused(CallerError):
    """The ``Idempotency-Key`` was used before, with another body."""

    code = "idempotency_key_reused"

    def __init__(self, *, saga: UUID) -> None:
        self.saga = saga
        super().__init__(
            f"this Idempotency-Key started saga {saga} with another body; "
            "use a new key for another saga, or repeat the first body exactly"
        )


class BusinessKeyTaken(CallerError):
    """A saga of that definition with that business key is still live."""

    code = "business_key_taken"

    def __init__(self, *, business_key: str, saga: UUID) -> None:
        self.saga = saga
        super().__init__(
            f"saga {saga} with business key {business_key!r} is still live; "
            "wait for its end, cancel it, or use another business key"
        )


class VerbRefused(CallerError):
    """The saga's state does not allow the verb."""

    code = "verb_refused"

    def __init__(self, *, verb: str, status: str, possible: Sequence[str]) -> None:
        self.verb = verb
        self.status = status
        self.possible = tuple(possible)
        allowed = ", ".join(self.possible) or "none"
        super().__init__(f"a {status} saga cannot be told to {verb}; possible now: {allowed}")


class CallbackContradicts(CallerError):
    """A tool reports something else than before; both are kept."""

    code = "callback_contradicts"

    def __init__(self, *, saga: UUID, step: str) -> None:
        self.saga = saga
        super().__init__(
            f"step {step!r} of saga {saga} was reported otherwise before; this is kept as evidence,"
            " and a person is alerted"
        )


class StoreUnavailable(ServiceError):
    """The database does not answer; what was asked may or may not have happened."""

    code = "store_unavailable"

    def __init__(self, message: str, *, saga: UUID | None = None) -> None:
        self.saga = saga
        super().__init__(message)


class SchemaBehind(ServiceError):
    """The database's schema, or its role's settings, are not what this release needs."""

    code = "schema_behind"

    def __init__(self, *, what: str, found: str | None, needed: str) -> None:
        super().__init__(
            f"the database's {what} is {found or 'none'!r}, this release needs {needed!r}; "
            "run, as the role that the service uses: amends migrate"
        )


class CannotMigrate(ServiceError):
    """A transaction pooler stands between us and the database."""

    code = "cannot_migrate"

    def __init__(self) -> None:
        super().__init__(
            "this URL leads through a transaction pooler, which would keep the migration's locks; "
            "run amends migrate with the database's own URL"
        )


class NewerFormat(ServiceError):
    """A newer release has moved the saga; this one cannot read what it wrote."""

    code = "newer_format"

    def __init__(self, *, saga: UUID) -> None:
        self.saga = saga
        super().__init__(f"a newer release has moved saga {saga}; ask a replica of that release")


class Fenced(ServiceError):
    """This incarnation was revoked: others have taken its sagas over."""

    code = "fenced"

    def __init__(self, *, incarnation: UUID) -> None:
        self.incarnation = incarnation
        super().__init__(f"incarnation {incarnation} was revoked; nothing was written")


class RowRefused(ServiceError):
    """The database refuses this saga's row for what is in it, or cannot lock it in time."""

    code = "row_refused"

    def __init__(self, *, saga: UUID, sqlstate: str, message: str) -> None:
        self.saga = saga
        self.sqlstate = sqlstate
        super().__init__(f"the database refuses saga {saga} (SQLSTATE {sqlstate}): {message}")

    @property
    def is_contention(self) -> bool:
        """Somebody else held the row's lock for too long; nothing is wrong with the row."""
        return self.sqlstate == "55P03"


class IllegalEvent(Exception):
    """A (state, event) pair that cannot occur: a bug of ours, never the caller's."""

    def __init__(self, *, state: str, fact: str) -> None:
        super().__init__(f"a saga that is {state} cannot meet {fact}")
