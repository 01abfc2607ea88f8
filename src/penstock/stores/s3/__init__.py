"""The S3 dialect: options, credentials, verbs, vocabulary, code table, signature and presets."""
