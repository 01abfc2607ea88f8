"""What shows that a new driver keeps the promises: contract tests for it, and a server that follows a script."""
