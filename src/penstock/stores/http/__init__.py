"""Shared parts of the HTTP dialects: verified answers, code tables, XML, listings and metadata."""
