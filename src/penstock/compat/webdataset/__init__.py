"""Reading names of ``webdataset`` 1.0 over Penstock: ``import penstock.compat.webdataset as wds``, and nothing else.

``wds.WebDataset(urls).shuffle(1000).decode("pil").to_tuple("jpg", "cls")`` yields the samples that webdataset yields:
dicts with ``__key__``, ``__url__`` and the bytes of each field. Differences:

- The headers of the shards are read once, when the dataset is created (all bytes of shards with small samples). To pay
  for this once, pass a ``ps.Catalog`` of the shards, which can be saved, in place of the URLs.
- ``shuffle(n)`` of any ``n`` and ``shardshuffle=`` of any size give ``ps.order.BlockShuffle()``: blocks of 1 MiB of all
  shards are mixed. No buffer is kept, each epoch has another order that depends on ``seed`` and epoch alone (default
  seed: ``WDS_SEED``, or 0), and the iterator's ``state_dict`` resumes it exactly.
- Ranks (``nodesplitter=wds.split_by_node``) and workers share samples and not shards, so there may be fewer shards than
  workers. Each sample comes once per epoch; but each worker process, and each rank, reads every block of 1 MiB that has
  a sample for it. ``ps.DataLoader`` over ``from_shards(…)`` with ``shuffle=ps.order.Lanes()`` reads each block once.
- Shards are URLs of any store, or local paths; those of a dataset are in one bucket. ``pipe:curl -s -L URL``,
  ``pipe:aws s3 cp URL -`` and ``pipe:gsutil cat URL`` become the URL; another pipe raises ``Unsupported``.
- Samples of local files have no ``__local_path__``.
- A link, a sparse or a compressed archive, and members of a sample that are not neighbours raise an error by name.
- ``decode`` uses the decoders of webdataset, which must be installed for it.
- Left out, with an explicit error: ``resampled=True``, ``cache_dir=``, ``handler=`` of the dataset, own splitters.
"""

from typing import NoReturn

from penstock.compat.arguments import refuse_name
from penstock.errors import require_extras

with require_extras("penstock.compat.webdataset needs torch", torch="torch"):
    from penstock.compat.webdataset.datasets import (
        WebDataset,
        WebLoader,
        single_node_only,
        split_by_node,
        split_by_worker,
    )
    from penstock.compat.webdataset.fluid import (
        NAMES,
        default_collation_fn,
        ignore_and_continue,
        ignore_and_stop,
        reraise_exception,
        warn_and_continue,
        warn_and_stop,
    )

__all__ = [
    "WebDataset",
    "WebLoader",
    "default_collation_fn",
    "ignore_and_continue",
    "ignore_and_stop",
    "reraise_exception",
    "single_node_only",
    "split_by_node",
    "split_by_worker",
    "warn_and_continue",
    "warn_and_stop",
]


def __getattr__(name: str) -> NoReturn:
    refuse_name(__name__, name, NAMES)
