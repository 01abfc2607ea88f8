"""Inventories that stores write of their buckets, read in place of a listing."""
