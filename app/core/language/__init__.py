"""The language of definitions: from a JSON document to a ``Definition``, or to all its faults.

What a document may say stands in tables: a ``Shape`` for each object (``shapes``), with the kind of
each field (``kinds``). Documents are read by them, and the JSON Schema for editors is made of them
(``schema``). Below ``document`` each part has a module of its own: ``steps``, ``order`` (needs and
the pivot), ``calls``, ``verify``, ``answers``, ``limits``, and the connectors. ``places`` says what
an expression sees, ``references`` checks that it refers to nothing else. ``advice`` finds what is
valid and yet likely to need a person one day.
"""

from app.core.language.advice import warnings
from app.core.language.document import canonical_bytes, parse_definition
from app.core.language.schema import language_schema

__all__ = ["canonical_bytes", "language_schema", "parse_definition", "warnings"]
