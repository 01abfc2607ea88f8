"""Local copies of objects, for libraries that take only a path."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import lru_cache
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["local_copy"]


def local_copy(download: Callable[[str, str], None], path: str) -> str:
    """Copy an object to a temporary file, kept until the process ends, and return its path.

    Args:
        download: Function that writes an object to a file: ``StorageClient.download_file``.
        path: The object's path below the profile.

    Raises:
        NotFound: The object does not exist.

    """
    suffix = path.rpartition("/")[2][-64:]
    handle, name = tempfile.mkstemp(dir=_folder(os.getpid()), suffix=suffix)
    os.close(handle)
    download(path, name)
    return name


@lru_cache(maxsize=1)
def _folder(process: int) -> str:
    """Return this process's folder, deleted when the process ends, also a worker; a forked child has a separate one."""
    name = tempfile.mkdtemp(prefix=f"penstock-{process}-")
    Finalize(None, shutil.rmtree, (name,), {"ignore_errors": True}, exitpriority=0)
    return name
