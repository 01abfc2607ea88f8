"""Estimated cost of an epoch before it is read: requests, bytes, memory, time; and advice to reduce it."""
