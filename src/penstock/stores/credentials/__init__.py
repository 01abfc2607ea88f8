"""Credentials from functions and processes, renewed before they expire."""
