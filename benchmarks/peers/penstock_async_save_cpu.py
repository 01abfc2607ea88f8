"""A background save beside steps that a core computes, without Python: a matrix product in one thread."""

import torch
from beside import measure

_WIDTH = 1024  # some tens of ms a step

torch.set_num_threads(1)
matrix = torch.ones(_WIDTH, _WIDTH)
measure(lambda: matrix @ matrix)
