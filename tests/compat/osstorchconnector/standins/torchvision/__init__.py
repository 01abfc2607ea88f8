"""Stands in for torchvision in programs of tests: as many of its transforms as those use."""
