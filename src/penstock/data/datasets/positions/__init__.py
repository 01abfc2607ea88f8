"""Positions: the rank and the cursor that an iteration reads from, and how it resumes."""
