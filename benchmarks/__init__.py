"""The project's own benchmark: what a user gains over each alternative. ``python -m benchmarks`` runs it."""
