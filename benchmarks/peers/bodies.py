"""Bodies of samples of about a size, no two alike: what the writers of shards and of rows put into them."""

import random


def bodies(size, count):
    """Yield ``count`` bodies of 3/7 to 11/7 of ``size`` bytes."""
    draw = random.Random(0)
    block = draw.randbytes(4 << 20)
    for number in range(count):
        start, length = draw.randrange(2 << 20), draw.randrange(size * 3 // 7, size * 11 // 7)
        yield f"{number:08d}".encode() + block[start : start + length]
