"""``dataflux_pytorch`` over Penstock: change the import to ``penstock.compat.dataflux_pytorch``, and nothing else.

Public names and arguments are those of gcs-torch-dataflux 1.4.0. What differs:

- Nothing is composed: the bucket is only read. ``Config`` says what each setting does.
- Every read is verified and held to the version that was listed; an object that was replaced meanwhile raises
  ``Changed``. Requests are tried again for 120 s without progress, or as the retry configuration says.
- Objects are sorted by name, of any storage class. ``dataset.objects`` is a view with a list's manners.
- Errors are Penstock's (``penstock.NotFound`` is also a ``FileNotFoundError``), and so are their texts.
- A checkpoint's reader fetches what is read, in bounded memory; a writer sends parts while it is written to. It
  publishes when it is closed well and never otherwise.
- Of ``storage_client`` the credentials and the endpoint are used, also in workers. Without one: Google's application
  default credentials, or ``STORAGE_EMULATOR_HOST``. Objects are found without ``project_name``.
- Lightning 2.6 works (``weights_only=``). ``GCSDistributedWriter`` makes a save visible as one.
- Left out: ``DatafluxFSDPStrategy`` of the demos (``penstock.checkpoint.lightning.ModelParallelStrategy``).
"""

from penstock.compat.dataflux_pytorch import dataflux_checkpoint, dataflux_iterable_dataset, dataflux_mapstyle_dataset

__all__ = ["dataflux_checkpoint", "dataflux_iterable_dataset", "dataflux_mapstyle_dataset"]
