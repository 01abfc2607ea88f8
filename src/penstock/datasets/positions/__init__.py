"""Positions: for whom and from where an iteration reads, and how it resumes."""
