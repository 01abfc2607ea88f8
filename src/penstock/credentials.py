"""Credentials that a function of the user's returns to ``S3Options(credentials=...)`` and its like."""

from penstock.engine.contracts.credentials import BearerToken, Credentials

__all__ = ["BearerToken", "Credentials"]
