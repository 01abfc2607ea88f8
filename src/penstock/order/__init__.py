"""Integers only: which sample comes at which position of an epoch, and which positions a rank and a worker take."""
