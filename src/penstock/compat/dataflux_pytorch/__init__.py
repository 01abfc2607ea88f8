"""``dataflux_pytorch`` over Penstock: change the import to ``penstock.compat.dataflux_pytorch``, and nothing else.

Public names and arguments are those of gcs-torch-dataflux 1.4.0. Differences:

- Objects are never composed: datasets only read the bucket. ``Config`` describes the effect of each setting.
- Every read is verified and bound to the listed version; an object that was replaced meanwhile raises ``Changed``.
  Requests are retried until 120 s pass without progress, or as the retry configuration specifies.
- Objects are sorted by name; all storage classes are included. ``dataset.objects`` is a list.
- Errors and their messages are Penstock's (``penstock.NotFound`` is also a ``FileNotFoundError``).
- A checkpoint reader fetches data as it is read, in bounded memory. A writer uploads parts while the program writes,
  and publishes the object on a successful close, never otherwise.
- ``storage_client`` supplies the credentials and the endpoint, also in workers. Without it: Google's application
  default credentials, or ``STORAGE_EMULATOR_HOST``. ``project_name`` is not needed to find objects.
- Lightning 2.6 works (``weights_only=``). ``GCSDistributedWriter`` makes a save visible atomically.
- Left out: ``DatafluxFSDPStrategy`` of the demos; use ``penstock.checkpoint.lightning.ModelParallelStrategy``.
"""

from penstock.errors import require_extras

with require_extras("penstock.compat.dataflux_pytorch needs torch", torch="torch"):
    from penstock.compat.dataflux_pytorch import (
        dataflux_checkpoint,
        dataflux_iterable_dataset,
        dataflux_mapstyle_dataset,
    )

__all__ = ["dataflux_checkpoint", "dataflux_iterable_dataset", "dataflux_mapstyle_dataset"]
