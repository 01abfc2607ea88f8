"""Writes: an object is uploaded in parts or in one request, and published whole."""
