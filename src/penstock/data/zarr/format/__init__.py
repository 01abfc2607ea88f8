"""Zarr format: metadata documents (v2 and v3) to layouts, layouts to keys and byte ranges, bytes to chunks."""
