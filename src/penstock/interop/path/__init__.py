"""Objects as pathlib-style paths: ``ps.Path``, which universal_pathlib also uses for ``penstock://`` and ``msc://``.

Differences from pathlib: keys are not normalized (``//``, ``.`` and ``..`` stay); a directory is a prefix with objects
below it, so ``mkdir`` does nothing; ``rename`` copies and deletes; links, owners and modes do not exist.
"""

from penstock.errors import needing

with needing("ps.Path needs universal_pathlib", upath="path"):
    from penstock.interop.path.paths import PenstockPath

Path = PenstockPath

__all__ = ["Path", "PenstockPath"]
