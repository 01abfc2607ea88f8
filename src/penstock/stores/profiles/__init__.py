"""Profiles: stores by name, from Penstock's files and those of other tools, merged, expanded and typed."""
