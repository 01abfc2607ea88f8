"""Version of Penstock."""

__all__ = ["VERSION"]

VERSION = "0.1.0.dev0"
