"""Things to try sagas on; nothing here imports, or is imported by, the service."""
