"""Carries reads and writes out within a budget, verified and retried. Knows neither HTTP nor S3."""
