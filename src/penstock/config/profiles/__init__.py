"""Profiles: named stores in files of ours and of other tools, merged, expanded and typed."""
