"""Zarr arrays and groups copied into other chunks, shards and codecs: zarr decodes and encodes."""
