"""Copies of zarr arrays and groups with other chunks, shards and codecs; zarr decodes and encodes."""
