"""torch_checkpointing's storage on an object store, where the rename that commits a checkpoint is one conditional PUT.

1. Each rank writes files below a temporary name (``storage``), and next to each file the digests of its blocks.
2. One rank renames: it writes a list of the files with their digests, then the table (``names``) that gives the new
   name to the old prefix. No object is copied.
3. All ranks read the table and the list, and verify each block that they read.
"""

from penstock.errors import require_extras

with require_extras(
    "penstock.checkpoint.torch_checkpointing needs torch_checkpointing",
    torch="torch",
    torch_checkpointing="checkpointing",
):
    from penstock.checkpoint.torch_checkpointing.storage import Storage, StorageConfig

__all__ = ["Storage", "StorageConfig"]
