"""How a catalog lies in memory that processes share, and in a file."""
