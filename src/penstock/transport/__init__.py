"""Requests in, filled memory out: one I/O thread per process around libcurl. Knows HTTP, not S3."""
