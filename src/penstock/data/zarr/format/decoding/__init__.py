"""Decoding of chunks to values: by numcodecs, or by zarr for codecs that only zarr knows."""
