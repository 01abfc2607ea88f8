"""Azure Blob Storage: options, credentials, signatures, verbs, code table and listings."""
