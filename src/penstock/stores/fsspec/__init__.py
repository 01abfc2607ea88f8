"""Stores over fsspec's filesystems."""
