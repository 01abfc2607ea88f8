"""Providers of plain files: of web servers, and of whatever fsspec opens."""
