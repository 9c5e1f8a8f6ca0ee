"""Names in a path: what cannot be the name of anything is not found, like any other."""

from uuid import UUID

from app.core.errors import NotFound
from app.core.identity import SagaId, StepId
from app.schemas.shapes import DEFINITION_NAME_CHARACTERS_MAX, VERSION_MAX

_SHOWN_CHARACTERS_MAX = 100


def saga_id_of(text: str) -> SagaId:
    """The id that a path names, in the one form that we write.

    Raises:
        NotFound: it is no UUID.
    """
    try:
        found = UUID(text)
    except ValueError:
        found = None
    if found is None or str(found) != text.lower():
        raise NotFound(kind="saga", name=text[:_SHOWN_CHARACTERS_MAX])
    return SagaId(found)


def step_id_of(text: str) -> StepId:
    """The step that a path names.

    Raises:
        NotFound: no step could have that id.
    """
    if len(text) > _SHOWN_CHARACTERS_MAX or not text.isprintable():
        raise NotFound(kind="step", name=text[:_SHOWN_CHARACTERS_MAX])
    return StepId(text)


def definition_name_of(text: str) -> str:
    """The name that a path names.

    Raises:
        NotFound: no definition could be named so.
    """
    if len(text) > DEFINITION_NAME_CHARACTERS_MAX or not text.isprintable():
        raise NotFound(kind="definition", name=text[:_SHOWN_CHARACTERS_MAX])
    return text


def version_of(name: str, text: str) -> int:
    """The version that a path names.

    Raises:
        NotFound: no version could have that number.
    """
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(VERSION_MAX))
    if not is_number or not 1 <= int(text) <= VERSION_MAX:
        number = text[:_SHOWN_CHARACTERS_MAX]
        raise NotFound(kind="definition", name=f"{name} version {number}")
    return int(text)
