"""Rules about the code itself, measured rather than reviewed."""
