"""Inventories that stores write of their buckets, read as listings."""
