"""Slow calls: found while they are in flight, and requested a second time at another address."""
