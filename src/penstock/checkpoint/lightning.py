"""Lightning's checkpoints on an object store: a plugin, a callback and a strategy."""

from __future__ import annotations

import re
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from penstock.errors import CheckpointError, InvalidURL, Unusable, require_extras

with require_extras("penstock.checkpoint.lightning needs lightning", torch="lightning", lightning="lightning"):
    import torch
    from lightning.pytorch import callbacks, strategies
    from lightning.pytorch.plugins import io
    from lightning.pytorch.trainer.states import TrainerFn
    from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_optimizer_state_dict,
        set_model_state_dict,
        set_optimizer_state_dict,
    )
    from torch.distributed.fsdp import FullyShardedDataParallel, OptimStateKeyType

from penstock.checkpoint.commit import remove
from penstock.checkpoint.dcp.reader import StorageReader
from penstock.checkpoint.dcp.writer import StorageWriter
from penstock.checkpoint.run.background import BackgroundJob
from penstock.checkpoint.staging import Stage
from penstock.checkpoint.torchfile.verbs import load, save

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

    from lightning.pytorch import Trainer

    from penstock.options import StoreOptions

    Path = str | pathlib.Path
    _Strategy = strategies.ParallelStrategy

else:
    _Strategy = object

__all__ = ["AsyncCheckpointIO", "CheckpointIO", "ModelCheckpoint", "ModelParallelStrategy"]

# Also matches a path that Lightning has made absolute.
_COLLAPSED = re.compile(r"(^|/)(s3|file|memory):/")


class CheckpointIO(io.CheckpointIO):
    """Checkpoints by URL or path: ``Trainer(plugins=[CheckpointIO()])``.

    A save is atomic: it replaces the checkpoint at its path after it is complete.

    Args:
        store: Options for every URL, or the name of a profile; default: environment and profile.

    Example:
        >>> from penstock.checkpoint.lightning import CheckpointIO
        >>> CheckpointIO().save_checkpoint({"global_step": 7}, "s3://bucket/run/last.ckpt")
        >>> CheckpointIO().load_checkpoint("s3://bucket/run/last.ckpt")
        {'global_step': 7}
    """

    def __init__(self, store: StoreOptions | str | None = None) -> None:
        self.store = store

    def save_checkpoint(self, checkpoint: Any, path: Path, storage_options: object = None) -> None:  # noqa: ANN401  whatever is saved
        """Save with ``torch.save``; on return the object is stored and verified. Takes no storage options."""
        if storage_options is not None:
            raise Unusable("pass options of a store to the plugin: CheckpointIO(store=…)", url=str(path))
        save(checkpoint, self._place(path), store=self.store)

    def load_checkpoint(
        self,
        path: Path,
        map_location: object = "cpu",
        weights_only: bool | None = None,  # noqa: FBT001  as Lightning's
    ) -> Any:  # noqa: ANN401  any saved value
        """Return the saved value, of any type, by default on the CPU; Lightning moves it to its device.

        ``weights_only=False`` runs any code that the file names: use it only for files you trust. None means True.
        Raise ``NotFound`` if it does not exist.
        """
        return load(
            self._place(path), map_location=map_location, weights_only=weights_only is not False, store=self.store
        )

    def remove_checkpoint(self, path: Path) -> None:
        """Delete a checkpoint: an object, or the checkpoint files of a folder. A missing one is not an error.

        Raises:
            InvalidURL: The path is a bucket's root, the working directory, the home directory, or a parent of one of
                them.
            Unusable: The path is a folder without a checkpoint; nothing was deleted.
        """
        remove(self._place(path), self.store)

    def _place(self, path: Path) -> Path:
        """Return the URL or path of a checkpoint; raise the errors of an invalid one."""
        _remote(path)
        return path

    def teardown(self) -> None:
        """Do nothing: saves are complete when they return."""


class AsyncCheckpointIO(io.AsyncCheckpointIO):
    """Saves and removals in the background, in the requested order.

    Lightning's own class removes a superseded checkpoint at once: for a while, or for good if the save fails, neither
    it nor its successor exists. This class removes it only after its successor is complete. Memory: one copy of the
    state, in CPU memory (page-locked with a GPU). A save waits for the previous one.

    The next ``save_checkpoint`` or ``load_checkpoint``, or ``teardown``, raises an error in the background once.
    Operations that were requested after the failed one are not done.

    Args:
        checkpoint_io: The plugin whose operations are run; default: a ``CheckpointIO()``.

    Example:
        >>> from penstock.checkpoint.lightning import AsyncCheckpointIO, CheckpointIO
        >>> plugin = AsyncCheckpointIO(CheckpointIO())  # for Trainer(plugins=[plugin])
        >>> plugin.save_checkpoint({"global_step": 7}, "s3://bucket/run/last.ckpt")
        >>> plugin.load_checkpoint("s3://bucket/run/last.ckpt")
        {'global_step': 7}
    """

    def __init__(self, checkpoint_io: io.CheckpointIO | None = None) -> None:
        self._carrying = CheckpointIO() if checkpoint_io is None else checkpoint_io
        super().__init__(self._carrying)
        self._stage = Stage()
        self._last: BackgroundJob | None = None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Path, storage_options: object = None) -> None:
        """Wait for pending operations, copy the state, and save the copy in the background."""
        self._wait()
        copied = self._stage.copy(checkpoint)
        self._last = BackgroundJob(partial(self._carrying.save_checkpoint, copied, path, storage_options))

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  whatever is wrapped takes
        """Return the loaded checkpoint, after all pending operations, which may be its own save."""
        self._wait()
        return self._carrying.load_checkpoint(*args, **kwargs)

    def remove_checkpoint(self, path: Path) -> None:
        """Remove in the background, after all operations requested before."""
        self._last = BackgroundJob(partial(self._carrying.remove_checkpoint, path), after=self._last)

    def teardown(self) -> None:
        """Wait for all pending operations."""
        self._wait()

    def _wait(self) -> None:
        last = self._last
        try:
            if last is not None:
                last.wait()
        finally:
            # Ctrl-C ends only this wait: the next call waits again.
            if last is not None and last.complete:
                self._last = None


class ModelCheckpoint(callbacks.ModelCheckpoint):
    """Lightning's ``ModelCheckpoint`` with its disk behavior in a bucket, too.

    - ``fit(ckpt_path="last")`` finds the last checkpoint. Lightning (2.6) looks for it on the local disk, finds
      nothing, and starts from the beginning.
    - Nothing outside ``dirpath`` is removed, nor the checkpoint that the training resumed from. Lightning (2.6) removes
      the best checkpoint of the resumed run as superseded, even from another ``dirpath``.
    - A run that resumed from a checkpoint of an epoch's last batch can be resumed again. Lightning (2.6) counts one
      epoch too few then, and its later checkpoints restart their epoch: batches repeat, with any loader.
    - A strategy that can only use disks is refused. Lightning's own for FSDP, model parallelism and DeepSpeed would
      write to a local folder named ``s3:``.

    The arguments are Lightning's.

    Example:
        >>> from penstock.checkpoint.lightning import ModelCheckpoint
        >>> from penstock.interop.fsspec import register
        >>> register()  # Lightning opens s3:// with Penstock
        >>> saving = ModelCheckpoint("s3://bucket/run", save_top_k=2, monitor="loss")  # for Trainer(callbacks=[saving])
        >>> saving.dirpath
        's3://bucket/run'
    """

    def setup(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  as Lightning's
        """Set up the directory; raise ``Unusable`` for a bucket with a disk-only strategy, and for a collapsed URL."""
        _remote(self.dirpath)
        super().setup(trainer, *args, **kwargs)
        if _remote(self.dirpath) and _local(trainer.strategy):
            name = type(trainer.strategy).__name__
            raise Unusable(
                f"{name} saves to disks only; for FSDP2 and tensor parallelism in a bucket use "
                "penstock.checkpoint.lightning.ModelParallelStrategy",
                url=str(self.dirpath),
            )

    def on_train_start(self, trainer: Trainer, *args: Any) -> None:  # noqa: ANN401  as Lightning's
        """Count the epoch that begins, where the run resumes from the last batch of the epoch before it."""
        super().on_train_start(trainer, *args)
        loop = trainer.fit_loop
        now: Any = loop.epoch_progress.current
        if getattr(loop, "restarted_mid_epoch", False) and now.ready == now.processed:
            # Lightning has ended the epoch of the checkpoint, and begins the next only for other checkpoints.
            loop.epoch_progress.increment_ready()
            loop.epoch_progress.increment_started()

    def _find_last_checkpoints(self, trainer: Trainer) -> set[str]:
        found: set[str] = super()._find_last_checkpoints(trainer)
        return {self._fs.unstrip_protocol(path) for path in found} if _remote(self.dirpath) else found

    def _should_remove_checkpoint(self, trainer: Trainer, previous: str, current: str) -> bool:
        if not _remote(previous):
            return bool(super()._should_remove_checkpoint(trainer, previous, current))
        kept = (current, str(trainer.ckpt_path))
        return previous not in kept and previous.startswith(f"{self.dirpath}".rstrip("/") + "/")


class ModelParallelStrategy(strategies.ModelParallelStrategy):
    """Lightning's strategy for FSDP2 and tensor parallelism, with checkpoints in a bucket; unchanged on a disk.

    ``Trainer(strategy=ModelParallelStrategy(), plugins=[CheckpointIO()])``: the plugin has the store's options. A
    sharded checkpoint is a folder that all ranks save and one commits (``penstock.checkpoint.dcp``). It contains
    everything else that Lightning saves. Any number of ranks can load it. With ``save_distributed_checkpoint=False``
    a checkpoint is one object, saved by rank 0 and read whole by every rank.

    The arguments are Lightning's.

    Example:
        Not run, needs several GPUs with NCCL::

            strategy = ModelParallelStrategy(data_parallel_size=8, tensor_parallel_size=1)
            trainer = Trainer(devices=8, strategy=strategy, plugins=[CheckpointIO()])
            trainer.fit(model, ckpt_path="s3://bucket/run/last.ckpt")
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Path, storage_options: object = None) -> None:
        """Save on all ranks, atomically: the previous checkpoint is replaced after the new one is complete."""
        url = str(self.broadcast(filepath))
        if not _remote(url):
            super().save_checkpoint(checkpoint, filepath, storage_options)
        elif not self._save_distributed_checkpoint:
            strategies.ParallelStrategy.save_checkpoint(self, checkpoint, url, storage_options)
        elif storage_options is not None:
            raise Unusable("pass options of a store to the plugin: CheckpointIO(store=…)", url=url)
        else:
            model, optimizers = checkpoint.pop("state_dict"), checkpoint.pop("optimizer_states", [])
            writer = StorageWriter(url, overwrite=True, store=_options(self.checkpoint_io))
            save_shards(writer, model, optimizers, checkpoint if self.is_global_zero else None)

    def load_checkpoint(self, checkpoint_path: Path, weights_only: bool | None = None) -> dict[str, Any]:  # noqa: FBT001  Lightning's
        """Return the checkpoint's contents on all ranks; each loads its own shards.

        Raises:
            NotFound: The checkpoint does not exist.
            CheckpointError: Lightning did not save it.
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
    """Return the store options of a trainer's plugin, wrapped or not."""
    while isinstance(plugin, io.AsyncCheckpointIO):
        plugin = plugin.checkpoint_io
    if not isinstance(plugin, CheckpointIO):
        raise Unusable("checkpoints in a bucket take plugins=[penstock.checkpoint.lightning.CheckpointIO()]")
    return plugin.store


def _local(strategy: object) -> bool:
    kinds = (strategies.FSDPStrategy, strategies.ModelParallelStrategy, strategies.DeepSpeedStrategy)
    return isinstance(strategy, kinds) and not isinstance(strategy, ModelParallelStrategy)


def _remote(path: Path | None) -> bool:
    """Return whether a path is a URL; raise ``InvalidURL`` for a URL that pathlib turned into a local path."""
    text = str(path)
    if "://" in text:
        return True
    if found := _COLLAPSED.search(text):
        scheme = found[0].strip("/:")
        raise InvalidURL(f"pathlib drops a slash of {scheme}://, so this is a local folder: pass the URL as text")
    return False


_MODEL, _REST = "state_dict", "rest"


def save_shards(
    writer: StorageWriter, model: dict[str, Any], optimizers: Sequence[dict[str, Any]], rest: dict[str, Any] | None
) -> None:
    """Save, on all ranks together, the sharded states of a model and its optimizers, and the ``rest`` of one rank."""
    state: dict[str, Any] = {_MODEL: model}
    state |= {_optimizer(number): each for number, each in enumerate(optimizers)}
    if rest is not None:
        file = BytesIO()
        torch.save(rest, file)
        state[_REST] = torch.frombuffer(file.getbuffer(), dtype=torch.uint8)
    state_dict_saver.save(state, storage_writer=writer)


class Loading:
    """Loading into a sharded model and its optimizers; unless ``strict``, tensors may be missing or new."""

    def __init__(self, model: Any, optimizers: Sequence[Any], *, strict: bool) -> None:  # noqa: ANN401  a trainer may yet have none
        self._model = model
        self._optimizers = optimizers
        self._strict = strict

    def shards(self, reader: StorageReader, *, weights_only: bool) -> dict[str, Any]:
        """Load this rank's part of a checkpoint of ``save_shards``; return its ``rest``."""
        found = reader.read_metadata().state_dict_metadata.get(_REST)
        if found is None:
            raise CheckpointError("no trainer saved this checkpoint", url=reader.checkpoint_id)
        rest = torch.empty(found.size, dtype=torch.uint8)  # type: ignore[union-attr]  # a tensor's
        state: dict[str, Any] = {_MODEL: get_model_state_dict(self._model), _REST: rest}
        for number, optimizer in enumerate(self._optimizers):
            state[_optimizer(number)] = get_optimizer_state_dict(self._model, optimizer)
        state_dict_loader.load(
            state, storage_reader=reader, planner=DefaultLoadPlanner(allow_partial_load=not self._strict)
        )
        self._set(state[_MODEL], [state[_optimizer(number)] for number in range(len(self._optimizers))])
        return dict(torch.load(BytesIO(rest.numpy().data), map_location="cpu", weights_only=weights_only))

    def whole(self, checkpoint: dict[str, Any]) -> dict[str, Any]:
        """Load this rank's part of a Lightning checkpoint that is one object; return the rest of the checkpoint."""
        named = OptimStateKeyType.PARAM_NAME
        states = checkpoint.get("optimizer_states", []) if self._optimizers else []
        states = [FullyShardedDataParallel.rekey_optim_state_dict(each, named, self._model) for each in states]
        self._set(checkpoint.pop("state_dict"), states, whole=True)
        return checkpoint

    def _set(self, model: dict[str, Any], optimizers: list[dict[str, Any]], *, whole: bool = False) -> None:
        options = StateDictOptions(full_state_dict=whole, strict=self._strict)
        set_model_state_dict(self._model, model, options=options)
        for optimizer, state in zip(self._optimizers, optimizers, strict=True):
            set_optimizer_state_dict(self._model, optimizer, state, options=options)


def _optimizer(number: int) -> str:
    return f"optimizer_{number}"
