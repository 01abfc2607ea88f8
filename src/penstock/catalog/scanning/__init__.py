"""Listing a prefix in parallel: what is asked, in which parts, and what stands in for a listing of nothing."""
