"""Objects in the memory of one process."""
