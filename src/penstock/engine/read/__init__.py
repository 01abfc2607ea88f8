"""Reads: verified, resumed where they broke off, hedged, and ahead of the caller."""
