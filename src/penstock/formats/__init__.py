"""File formats: where the bytes of a dataset's values lie in objects, and how bytes become values."""
