"""What comes in and goes out over the wire, and how it becomes a value of the core."""

from app.schemas.documents import check_input, check_input_schema, load_definition, read_document

__all__ = ["check_input", "check_input_schema", "load_definition", "read_document"]
