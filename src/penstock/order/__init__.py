"""In what order: integers only, from a position of an epoch to a sample, and from a place to its positions."""
