"""Penstock's map-style dataset, as ``dialects`` says of this store."""

from dialects import read

read("azure_token")
