"""Google Cloud Storage: its XML API with S3's verbs, one call of its JSON API, and its credentials."""
