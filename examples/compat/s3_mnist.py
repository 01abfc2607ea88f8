"""The blog "Map-style datasets with Amazon's S3 connector, PyTorch and MinIO"; the import is changed, and nothing else.

The environment says where MinIO is: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION.
"""

import io
import os

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

from penstock.compat.s3torchconnector import S3MapDataset


class ImageTransform:
    """Makes a tensor and a label of an object such as mnist/train/3/0001.png."""

    def __call__(self, s3object):
        pixels = np.asarray(Image.open(io.BytesIO(s3object.read())).convert("L"))
        image = torch.tensor(pixels, dtype=torch.float32).flatten() / 255
        return image, int(s3object.key.split("/")[-2])


def main():
    uri = "s3://mnist/train"
    train_data = S3MapDataset.from_prefix(uri, region=os.environ["AWS_REGION"], transform=ImageTransform())
    print(f"{len(train_data)} images")
    loader = DataLoader(train_data, batch_size=32, shuffle=True, num_workers=2)

    model = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        seen, total = 0, 0.0
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen, total = seen + len(labels), total + loss.item()
        print(f"epoch {epoch}: {seen} images, loss {total / len(loader):.3f}")


if __name__ == "__main__":
    main()
