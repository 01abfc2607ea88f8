"""Committing a checkpoint of several objects, and removing a checkpoint."""
