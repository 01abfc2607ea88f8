"""The dialect of Azure Blob Storage: verbs, signatures, code table and listings."""

from penstock.drivers.azure.driver import Azure
from penstock.drivers.azure.signing import Container

__all__ = ["Azure", "Container"]
