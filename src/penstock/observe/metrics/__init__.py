"""Counts by host as metrics, and a loader's counts as scalars."""
