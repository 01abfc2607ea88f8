"""Penstock behind other libraries' interfaces: one foreign interface per file, each opening with what is lost."""
