"""Virtual arrays: references to chunks that lie in other objects."""
