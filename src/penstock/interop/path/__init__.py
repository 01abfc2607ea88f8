"""Objects as paths, with pathlib's manners: ``ps.Path``, and what universal_pathlib makes of ``penstock://`` and ``msc://``.

What differs from pathlib: keys stay as they are written (``//``, ``.`` and ``..`` too); a directory is a prefix that
something lies below, so ``mkdir`` does nothing; ``rename`` copies and deletes; there are no links, owners and modes.
"""

from penstock.errors import MissingExtra

try:
    import upath as _upath  # noqa: F401  said here once, with the extra
except ImportError as error:
    raise MissingExtra("ps.Path needs universal_pathlib: pip install 'penstock[path]'") from error

from penstock.interop.path.paths import PenstockPath

Path = PenstockPath

__all__ = ["Path", "PenstockPath"]
