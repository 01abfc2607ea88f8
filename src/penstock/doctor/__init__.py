"""Examines a store, from its host's name to deleting what was written: which step fails."""

from penstock.doctor.findings import Finding
from penstock.doctor.visit import examine

__all__ = ["Finding", "examine"]
