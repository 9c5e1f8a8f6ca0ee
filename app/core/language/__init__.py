"""The language of definitions: from a JSON document to a ``Definition``, or to all its faults.

``document`` reads a whole document, ``calls`` a call, ``http`` what it sends; ``fields``
reads one field with its type and limits, ``references`` checks what expressions refer to.
"""

from app.core.language.document import canonical_bytes, parse_definition, warnings

__all__ = ["canonical_bytes", "parse_definition", "warnings"]
