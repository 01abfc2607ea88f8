"""The floor of decoding: as many threads decode the same files from the RAM disk, and nothing else."""

from meter import Meter, in_threads
from photos import decoded, path

meter = Meter()


def decode(keys):
    for key in keys:
        body = path(meter, key).open("rb")
        with body:
            decoded(body)
            meter.count(key)


with meter:
    in_threads(meter.threads, decode, meter.keys)
