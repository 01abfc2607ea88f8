"""Chunks to values: by numcodecs, or by zarr where it alone knows a codec."""
