"""Reads and writes carried out within a budget, verified and retried. Knows neither HTTP nor S3."""
