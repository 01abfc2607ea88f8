"""One module for each command: options, help and example, and what the command does."""
