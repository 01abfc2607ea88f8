"""The tests: one folder per room, one file per file; tests/servers starts the real servers they talk to."""
