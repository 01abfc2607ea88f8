"""Checks outside the developer's environment: bare ones, other Pythons, the lowest versions that are admitted."""
