"""``report``: ``ray.train.report`` with a checkpoint that Penstock writes and verifies.

Ray gets a folder with one small file, which names the run and the step. So every version and mode of Ray can keep,
rank and delete its input, in a separate storage, and none of Penstock's objects are copied.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import Damaged, Unusable, require_extras
from penstock.schema import COUNT, read_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ray.train import Checkpoint

    from penstock.checkpoint.run.steps import CheckpointManager, Loader

_FILE = "penstock.json"
_FORMAT = 1
_FORM = {"penstock checkpoint": _FORMAT, "url": str, "step": COUNT}
_MOST_BYTES = 1 << 16


class Reported(NamedTuple):
    """The step behind a checkpoint of Ray.

    Attributes:
        url: Folder of the run, for ``ps.CheckpointManager``.
        step: Number of the step.

    Example:
        >>> from penstock.ray import Reported
        >>> Reported("s3://bucket/run/", step=3).step
        3
    """

    url: str
    step: int


def report(
    metrics: Mapping[str, Any],
    run: CheckpointManager,
    step: int,
    state: object,
    *,
    loader: Loader | None = None,
    metric: str | None = None,
) -> None:
    """Save ``state`` as a step of ``run``, and report metrics and step to Ray Train.

    All workers call it, equally often: it waits for the others, as ``ray.train.report`` does, before anything is
    saved, too. So a step that is saved was done by all. The worker of rank 0 saves; of a ``run.across(group)``, all
    do. Ray gets a checkpoint that names run and step (see ``reported``), in its own storage. Ray's
    ``CheckpointConfig`` keeps and deletes those; which steps are kept is up to ``run``.

    A worker that begins, or begins again after a failure or a change of their number, calls ``run.latest()`` and
    ``run.restore(loader=loader)``, as in any other training.

    Requests are those of ``CheckpointManager.save``.

    Args:
        metrics: The metrics of this worker: numbers and text.
        run: The steps of the run.
        step: Number of the step, at least 0.
        state: Anything that ``torch.save`` accepts: see ``CheckpointManager.save``.
        loader: The ``ps.DataLoader`` whose position in the data is saved.
        metric: Name of the metric by which ``keep_best`` of ``run`` compares steps; default: none.

    Raises:
        MissingExtra: Ray Train is not installed.
        Unusable: This is not a train function of Ray, or ``metrics`` does not have ``metric``.
        AlreadyExists: The step is already committed.
        PenstockError: The step could not be written; older steps are unchanged.

    Example:
        >>> import penstock.ray
        >>> def train(settings):  # for ray.train.torch.TorchTrainer(train, …)
        ...     run = ps.CheckpointManager("s3://bucket/run/")
        ...     penstock.ray.report({"loss": 0.1}, run, 100, {"weight": torch.zeros(2)})
    """
    with require_extras("penstock.ray needs Ray Train", ray="ray", torch="torch"):
        import ray.train
        from torch import distributed

    from penstock.checkpoint.run.steps import is_across_ranks

    rank = _rank(ray.train)
    if metric is not None and metric not in metrics:
        raise Unusable(f"metrics must have {metric!r}, the metric of the run; got {', '.join(metrics) or 'none'}")
    if distributed.is_initialized():
        # A worker that died on its way here has not trained on the batches that the saved position leaves behind.
        distributed.barrier()
    if rank and not is_across_ranks(run):
        ray.train.report(dict(metrics))
        return
    value = None if metric is None else float(metrics[metric])
    run.save(step, state, loader=loader, metric=value)
    if rank:
        ray.train.report(dict(metrics))
        return
    with TemporaryDirectory(prefix="penstock-") as folder:
        Path(folder, _FILE).write_text(json.dumps({"penstock checkpoint": _FORMAT, "url": run.url, "step": step}))
        ray.train.report(dict(metrics), checkpoint=ray.train.Checkpoint.from_directory(folder))


def _rank(train: Any) -> int:  # noqa: ANN401  the module ray.train
    try:
        return int(train.get_context().get_world_rank())
    except (RuntimeError, AttributeError, TypeError) as error:
        # Which error it is depends on Ray's version.
        message = f"cannot report to Ray Train: this is not a train function of one of its trainers ({error})"
        raise Unusable(message) from error


def reported(checkpoint: Checkpoint) -> Reported:
    """Return the step behind a checkpoint of Ray, such as ``result.checkpoint`` after a training.

    Reads one small file of Ray's storage.

    Args:
        checkpoint: The checkpoint, which ``report`` gave to Ray.

    Returns:
        Folder and step: ``ps.CheckpointManager(found.url).restore(found.step)`` has its state.

    Raises:
        Damaged: The checkpoint is another one.

    Example:
        >>> from pathlib import Path
        >>> class Kept:  # as ray.train.Checkpoint
        ...     def as_directory(self):
        ...         return contextlib.nullcontext(folder)
        >>> import contextlib, tempfile, penstock.ray
        >>> folder = tempfile.mkdtemp()
        >>> said = '{"penstock checkpoint": 1, "url": "s3://bucket/run/", "step": 100}'
        >>> Path(folder, "penstock.json").write_text(said) > 0
        True
        >>> penstock.ray.reported(Kept())
        Reported(url='s3://bucket/run/', step=100)
    """
    with suppress(OSError, Damaged), checkpoint.as_directory() as folder:
        path = Path(os.fspath(folder), _FILE)
        if path.stat().st_size <= _MOST_BYTES:
            said = read_json(path.read_bytes(), _FORM, "a checkpoint of Ray", str(path))
            return Reported(said["url"], said["step"])
    raise Damaged("this checkpoint of Ray was not reported by penstock.ray.report")
