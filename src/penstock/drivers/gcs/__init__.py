"""Google Cloud Storage: its XML API in S3's verbs, one call of its JSON API, and Google's credentials."""

from penstock.drivers.gcs.driver import GCS

__all__ = ["GCS"]
