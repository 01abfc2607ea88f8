"""As many of torchvision's transforms as the programs of tests use, of images with three channels."""

from __future__ import annotations

import numpy as np
import torch


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for each in self.transforms:
            image = each(image)
        return image


class Resize:
    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        scale = self.size / min(image.size)
        return image.resize([max(self.size, round(side * scale)) for side in image.size])


class CenterCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        left, top = ((side - self.size) // 2 for side in image.size)
        return image.crop((left, top, left + self.size, top + self.size))


class ToTensor:
    def __call__(self, image):
        return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = (torch.tensor(each).reshape(3, 1, 1) for each in (mean, std))

    def __call__(self, tensor):
        return (tensor - self.mean) / self.std
