"""Layout of a catalog in memory that processes share, and in a file."""
