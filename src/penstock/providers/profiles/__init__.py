"""Profiles as providers: looked up by name, and what holds for each."""
