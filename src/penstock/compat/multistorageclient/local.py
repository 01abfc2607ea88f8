"""Objects as files of this machine, for libraries that take a path alone."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import lru_cache
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.compat.multistorageclient.client import StorageClient

__all__ = ["local_copy"]


def local_copy(client: StorageClient, path: str) -> str:
    """Return the path of a copy, which lies in the temporary folder until the process ends. Raises ``NotFound``."""
    suffix = path.rpartition("/")[2][-64:]
    handle, name = tempfile.mkstemp(dir=_folder(os.getpid()), suffix=suffix)
    os.close(handle)
    client.download_file(path, name)
    return name


@lru_cache(maxsize=1)
def _folder(process: int) -> str:
    """Return this process's folder, which goes when the process ends, a worker's too; a forked child has its own."""
    name = tempfile.mkdtemp(prefix=f"penstock-{process}-")
    Finalize(None, shutil.rmtree, (name,), {"ignore_errors": True}, exitpriority=0)
    return name
