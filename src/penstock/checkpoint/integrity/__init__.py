"""Integrity of checkpoints: block checksums, the manifest that stores them, JSON documents with a digest."""
