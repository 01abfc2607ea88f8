"""The data: scikit-learn's handwritten digits as PNG objects whose keys carry the labels."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from penstock.source import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["COUNT", "upload"]

COUNT = 1797  # images, 8 x 8 pixels, 17 levels of grey, about equally many of each digit
_TEST_EVERY = 5  # every fifth image is for testing: 360 of them, the same ones in every run
_UPLOADS = 16  # at once; more would only queue at a server written in Python


def upload(url: str, show: Callable[[float], None]) -> int:
    """Store every image below ``url``, one PUT each, 16 in flight; returns how many bytes that is.

    ``show`` hears, on this thread, after each image how many are stored.
    """
    source, prefix = open_source(url)

    def store(image: tuple[str, bytes]) -> int:
        name, png = image
        source.put(prefix + name, png)
        return len(png)

    size_bytes = 0
    with ThreadPoolExecutor(_UPLOADS) as threads:
        for done, size in enumerate(threads.map(store, _images()), start=1):
            size_bytes += size
            show(done)
    return size_bytes


def _images() -> Iterator[tuple[str, bytes]]:
    """Yield ``train/7/0012.png`` or ``test/7/0010.png`` (part, label, index) and its bytes."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for index, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        part = "test" if index % _TEST_EVERY == 0 else "train"
        png = io.BytesIO()
        Image.fromarray((pixels * (255 / 16)).astype("uint8")).save(png, "PNG")
        yield f"{part}/{label}/{index:04}.png", png.getvalue()
