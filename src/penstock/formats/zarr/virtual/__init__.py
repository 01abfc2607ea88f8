"""Virtual arrays: chunks that lie in other objects, by references."""
