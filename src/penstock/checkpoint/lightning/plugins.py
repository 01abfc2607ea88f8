"""Lightning's checkpoints on an object store: as one object each, or as a folder that all ranks save."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from lightning.pytorch import callbacks, strategies
from lightning.pytorch.plugins import io
from lightning.pytorch.trainer.states import TrainerFn

from penstock.checkpoint.commit.remove import remove
from penstock.checkpoint.distributed.reader import StorageReader
from penstock.checkpoint.distributed.sharded import Loading, save_shards
from penstock.checkpoint.distributed.writer import StorageWriter
from penstock.checkpoint.run.background import Job
from penstock.checkpoint.torchfile.verbs import load, save
from penstock.checkpoint.transfer.staging import Stage
from penstock.errors import InvalidURL, Unusable

if TYPE_CHECKING:
    import pathlib

    from lightning.pytorch import Trainer

    from penstock.options import StoreOptions

    Path = str | pathlib.Path
    _Strategy = strategies.ParallelStrategy

else:
    _Strategy = object

_COLLAPSED = re.compile(r"(^|/)(s3|file|memory):/")  # also where Lightning has made it absolute

__all__ = ["AsyncCheckpointIO", "CheckpointIO", "ModelCheckpoint", "ModelParallelStrategy"]


class CheckpointIO(io.CheckpointIO):
    """Saves and loads by URL or path: ``Trainer(plugins=[CheckpointIO()])``.

    A save is atomic: it replaces the checkpoint at its path when it is complete.
    """

    def __init__(self, store: StoreOptions | str | None = None) -> None:
        """Use ``store``'s options for every URL; default: environment and profile."""
        self.store = store

    def save_checkpoint(self, checkpoint: Any, path: Path, storage_options: object = None) -> None:  # noqa: ANN401  whatever is saved
        """Save with ``torch.save``; it is in the store, and compared, when this returns. Takes no options."""
        if storage_options is not None:
            raise Unusable("a store's options are the plugin's: CheckpointIO(store=…)", url=str(path))
        _remote(path)
        save(checkpoint, path, store=self.store)

    def load_checkpoint(
        self,
        path: Path,
        map_location: object = "cpu",
        weights_only: bool | None = None,  # noqa: FBT001  as Lightning's
    ) -> Any:  # noqa: ANN401  whatever was saved
        """Return what was saved, of whatever type, by default on the CPU, from where Lightning moves it.

        ``weights_only=False`` runs whatever code the file names: only for files you trust. None is True. Raises
        ``NotFound``.
        """
        _remote(path)
        return load(path, map_location=map_location, weights_only=weights_only is not False, store=self.store)

    def remove_checkpoint(self, path: Path) -> None:
        """Delete a checkpoint: an object, or of a folder what a checkpoint in it is made of; a missing one is no error.

        Raises:
            InvalidURL: It is a bucket's root, the working directory, the home directory, or one above them.
            Unusable: It is a folder in which there is no checkpoint; nothing was deleted.

        """
        _remote(path)
        remove(path, self.store)

    def teardown(self) -> None:
        """Do nothing: what was saved is there."""


class AsyncCheckpointIO(io.AsyncCheckpointIO):
    """Saves and removes in the background, in the order asked for: ``plugins=[AsyncCheckpointIO(CheckpointIO())]``.

    Lightning's own removes at once, so that for a while, or for good where the save fails, neither the superseded
    checkpoint nor its successor is there; here what is superseded goes only after its successor is whole. Memory: one
    copy of the state, in CPU memory (page-locked where there is a GPU); the next save waits for the one before.

    What went wrong is raised by the next ``save_checkpoint`` or ``load_checkpoint``, or by ``teardown``, once; what was
    asked for after it is not done.
    """

    def __init__(self, checkpoint_io: io.CheckpointIO | None = None) -> None:
        """Carry what ``checkpoint_io`` does; default: a ``CheckpointIO()``."""
        self._carrying = CheckpointIO() if checkpoint_io is None else checkpoint_io
        super().__init__(self._carrying)
        self._stage = Stage()
        self._last: Job | None = None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Path, storage_options: object = None) -> None:
        """Wait for what is under way, copy the state aside, and save it in the background."""
        self._wait()
        copied = self._stage.copy(checkpoint)
        self._last = Job(partial(self._carrying.save_checkpoint, copied, path, storage_options))

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  whatever is wrapped takes
        """Wait for what is under way, which it may be, and load."""
        self._wait()
        return self._carrying.load_checkpoint(*args, **kwargs)

    def remove_checkpoint(self, path: Path) -> None:
        """Remove in the background, after all that was asked for before."""
        self._last = Job(partial(self._carrying.remove_checkpoint, path), after=self._last)

    def teardown(self) -> None:
        """Wait for everything."""
        self._wait()

    def _wait(self) -> None:
        last = self._last
        try:
            if last is not None:
                last.wait()
        finally:
            if last is not None and last.complete:  # Ctrl-C ends the wait only: the next one waits again
                self._last = None


class ModelCheckpoint(callbacks.ModelCheckpoint):
    """Lightning's own, with what it does on a disk done in a bucket too.

    - ``fit(ckpt_path="last")`` finds the last checkpoint. Lightning (2.6) looks for it on the local disk, says that
      there is none, and begins anew.
    - Nothing outside ``dirpath`` is removed, nor what the training went on from. Lightning (2.6) removes the best
      checkpoint of the run that was resumed, as superseded, also from another ``dirpath``.
    - A strategy that knows disks only is refused. Lightning's own for FSDP, model parallelism and DeepSpeed would write
      to a local folder named ``s3:``.
    """

    def setup(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  as Lightning's
        """Look where to save. ``Unusable`` for a bucket and a strategy that cannot, and for a URL that is a path."""
        _remote(self.dirpath)
        super().setup(trainer, *args, **kwargs)
        if _remote(self.dirpath) and _local(trainer.strategy):
            name = type(trainer.strategy).__name__
            raise Unusable(
                f"{name} saves to disks only; for FSDP2 and tensor parallelism in a bucket there is "
                "penstock.checkpoint.lightning.ModelParallelStrategy",
                url=str(self.dirpath),
            )

    def _find_last_checkpoints(self, trainer: Trainer) -> set[str]:
        found: set[str] = super()._find_last_checkpoints(trainer)
        return {self._fs.unstrip_protocol(path) for path in found} if _remote(self.dirpath) else found

    def _should_remove_checkpoint(self, trainer: Trainer, previous: str, current: str) -> bool:
        if not _remote(previous):
            return bool(super()._should_remove_checkpoint(trainer, previous, current))
        kept = (current, str(trainer.ckpt_path))
        return previous not in kept and previous.startswith(f"{self.dirpath}".rstrip("/") + "/")


class ModelParallelStrategy(strategies.ModelParallelStrategy):
    """Lightning's for FSDP2 and tensor parallelism, with checkpoints in a bucket; on a disk it is Lightning's.

    ``Trainer(strategy=ModelParallelStrategy(), plugins=[CheckpointIO()])``: the plugin has the store's options. A
    sharded checkpoint is a folder that all ranks save and one commits (``penstock.checkpoint.dcp``), together with all
    else that Lightning saves; as many ranks as saved it, or others, load it. With ``save_distributed_checkpoint=False``
    it is one object, saved by rank 0 and read whole by every rank.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Path, storage_options: object = None) -> None:
        """Save on all ranks, atomically: the previous checkpoint is replaced when the new one is complete."""
        url = str(self.broadcast(filepath))
        if not _remote(url):
            super().save_checkpoint(checkpoint, filepath, storage_options)
        elif not self._save_distributed_checkpoint:
            strategies.ParallelStrategy.save_checkpoint(self, checkpoint, url, storage_options)
        elif storage_options is not None:
            raise Unusable("a store's options are the plugin's: CheckpointIO(store=…)", url=url)
        else:
            model, optimizers = checkpoint.pop("state_dict"), checkpoint.pop("optimizer_states", [])
            writer = StorageWriter(url, overwrite=True, store=_options(self.checkpoint_io))
            save_shards(writer, model, optimizers, checkpoint if self.is_global_zero else None)

    def load_checkpoint(self, checkpoint_path: Path, weights_only: bool | None = None) -> dict[str, Any]:  # noqa: FBT001  Lightning's
        """Load on all ranks, each its shards.

        Raises:
            NotFound: There is none.
            CheckpointError: It is not one of Lightning's.

        """
        url = str(self.broadcast(checkpoint_path))
        if not _remote(url):
            found: dict[str, Any] = super().load_checkpoint(checkpoint_path, weights_only)
            return found
        module: Any = self.lightning_module
        optimizers = self.optimizers if module.trainer.state.fn == TrainerFn.FITTING else []
        loading = Loading(self.model, optimizers, strict=module.strict_loading)
        if not self._save_distributed_checkpoint:
            return loading.whole(self.checkpoint_io.load_checkpoint(url, weights_only=weights_only))
        only = weights_only is not False
        reader = StorageReader(url, weights_only=only, store=_options(self.checkpoint_io))
        return loading.shards(reader, weights_only=only)


def _options(plugin: object) -> StoreOptions | str | None:
    """Return the options that a trainer's plugin was given, wrapped or not."""
    while isinstance(plugin, io.AsyncCheckpointIO):
        plugin = plugin.checkpoint_io
    if not isinstance(plugin, CheckpointIO):
        raise Unusable("checkpoints in a bucket take plugins=[penstock.checkpoint.lightning.CheckpointIO()]")
    return plugin.store


def _local(strategy: object) -> bool:
    kinds = (strategies.FSDPStrategy, strategies.ModelParallelStrategy, strategies.DeepSpeedStrategy)
    return isinstance(strategy, kinds) and not isinstance(strategy, ModelParallelStrategy)


def _remote(path: Path | None) -> bool:
    """Say whether this is a URL. ``InvalidURL`` for one that went through pathlib, which makes a local path of it."""
    text = str(path)
    if "://" in text:
        return True
    if found := _COLLAPSED.search(text):
        scheme = found[0].strip("/:")
        raise InvalidURL(f"pathlib drops a slash of {scheme}://, and this names a local folder: give the URL as text")
    return False
