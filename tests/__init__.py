"""The tests; `tests/` mirrors `app/`, plus `e2e/` (processes) and `house/` (rules about code)."""
