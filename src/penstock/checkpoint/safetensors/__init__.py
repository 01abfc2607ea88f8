"""Safetensors by URL: one file, or several with an index."""
