"""What is there: the objects of a data set, found by listing or read from a manifest, frozen in one table."""
