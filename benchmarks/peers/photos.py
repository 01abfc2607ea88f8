"""What decoding peers share: one decoder, and the files as they lie in the server's own folder."""

from pathlib import Path

import torch
from meter import BUCKET
from PIL import Image

torch.set_num_threads(1)  # threads or workers decode side by side: torch's own would only be in their way


def decoded(file):
    """Decode, resize and return a uint8 tensor (224, 224, 3): what a training's transform does."""
    image = Image.open(file).convert("RGB").resize((224, 224))
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(224, 224, 3)


def path(meter, key):
    """Return where the server has an object."""
    return Path(meter.manifest).parent / "data" / BUCKET / key
