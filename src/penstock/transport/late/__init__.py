"""Calls that take long: found while they are in flight, and asked for a second time at another address."""
