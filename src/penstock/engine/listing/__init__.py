"""Listings: pages in order, pages ahead, and parts in parallel."""
