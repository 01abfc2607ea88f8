"""Datasets for PyTorch: a catalog, an order, and samples read from the store."""
