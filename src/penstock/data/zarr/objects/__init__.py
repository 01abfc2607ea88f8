"""Locations of the objects of arrays, and sources that read them."""
