"""JSON as Python holds it: what definitions, inputs, outputs and expressions are made of."""

type JsonValue = bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None
