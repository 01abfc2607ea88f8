"""The safetensors library, from the RAM disk itself: no store, no network."""

import torch  # noqa: F401  so that importing is not timed
from meter import Meter
from model import SAFETENSORS
from safetensors.torch import load_file

meter = Meter()
path = meter.path(meter.layout(SAFETENSORS))
with meter:
    meter.check_tensors({name: tensor.clone() for name, tensor in load_file(path).items()})
