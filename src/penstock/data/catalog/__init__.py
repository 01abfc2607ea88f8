"""Catalogs: the objects of a dataset, found by listing or read from a manifest, frozen in one table."""
