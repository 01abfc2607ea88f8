"""Providers that speak S3's dialects: how their buckets are opened, and presets for the services that do."""
