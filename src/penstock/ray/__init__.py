"""Ray Train over Penstock: ``report`` saves a step of a ``CheckpointManager`` and reports it to Ray.

The datasets, ``ps.DataLoader`` and checkpoints need nothing of this room: in a train function of Ray, the loader takes
its rank from ``torch.distributed``, as everywhere. Jobs on Ray are in ``jobs/carriers``.
"""

from penstock.ray.train import Reported, report, reported

__all__ = ["Reported", "report", "reported"]
