"""Train on JPEGs that torchcodec decodes a batch at a time: on a GPU by nvJPEG, otherwise on the CPU.

python examples/jpegs.py s3://bucket/photos/ --batch-size 32
"""

import argparse
import time

import torch
from torchcodec.decoders import decode_jpeg

import penstock as ps

SIZE = 64


def encoded(sample):
    """Return the bytes of a file as they are, and the index of its folder's name."""
    return sample.read(), sample.label


def decode(batch):
    """Decode the files of a batch where its labels are; they have different sizes, so that each is resized alone."""
    files, labels = batch
    images = decode_jpeg(files, device=labels.device)
    resize = torch.nn.functional.interpolate
    return torch.cat([resize(each[None], (SIZE, SIZE), mode="bilinear", antialias=True) for each in images]), labels


def main() -> None:
    """Train a linear classifier, and print how many images a second came."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the folder that holds the classes' folders")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    arguments = parser.parse_args()

    dataset = ps.MapDataset.from_prefix(arguments.url, labels="folder", transform=encoded)
    loader = ps.DataLoader(
        dataset, arguments.batch_size, shuffle=True, device=arguments.device, pin_memory=True, device_transform=decode
    )
    model = torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.LazyLinear(len(dataset.classes)))
    model = model.to(arguments.device)
    model(torch.zeros(1, 3, SIZE, SIZE, device=arguments.device))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(arguments.epochs):
        began = time.perf_counter()
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images.float() / 255), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        rate = len(dataset) / (time.perf_counter() - began)
        print(f"epoch {epoch}: loss {loss:.2f}, {rate:.0f} images/s")


if __name__ == "__main__":
    main()
