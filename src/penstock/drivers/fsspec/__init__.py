"""Filesystems that fsspec opens, as stores."""

from penstock.drivers.fsspec.driver import Fsspec

__all__ = ["Fsspec"]
