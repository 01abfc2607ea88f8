"""Repositories of the Hugging Face Hub, read only: datasets, models and spaces, by branch, tag or commit."""
