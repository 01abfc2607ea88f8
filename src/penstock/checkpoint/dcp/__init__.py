"""Checkpoints that several ranks save and load together, through torch's Distributed Checkpoint.

1. ``writer``: ``dcp.save(state, storage_writer=StorageWriter(url))``: each rank sends its items, digested, and the
   coordinator publishes the marker last: a manifest that names an index, or ``.metadata`` in torch's own layout.
2. ``records`` turns the metadata into columns of the index and back, and ``chunks`` are the parts of tensors in it;
   ``torchmeta`` turns it into torch's pickle and back, and runs none of its code.
3. ``reader``: ``dcp.load(state, storage_reader=StorageReader(url))`` finds the marker, checks that all ranks read one
   version, looks up the places of what the planner wants, and fills the state's tensors through ``checkpoint/gather``,
   which verifies each block.
"""

from penstock.errors import require_extras

with require_extras("penstock.checkpoint.dcp needs torch", torch="torch"):
    from penstock.checkpoint.dcp.reader import StorageReader
    from penstock.checkpoint.dcp.writer import StorageWriter

__all__ = ["StorageReader", "StorageWriter"]
