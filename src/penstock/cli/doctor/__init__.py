"""Examination of a store, from name resolution to deletion, to find the step that fails."""

from penstock.cli.doctor.findings import Finding
from penstock.cli.doctor.visit import examine

__all__ = ["Finding", "examine"]
