"""``python -m app`` is the command ``amends``."""

from app.cli import main

main()
