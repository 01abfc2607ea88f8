"""What peers share that train on fields: epochs of shuffled batches, each sample of which comes once an epoch."""

import json
import time

from meter import Meter

EPOCHS, BATCH, WINDOW = 3, 32, 16  # that are read, samples of a batch, chunks that are mixed


def opened():
    """Return the meter of this task and where the array lies; the group of zarr's around it is the folder above."""
    meter = Meter()
    meter.began = time.perf_counter()
    return meter, meter.keys[0].partition("/")[0] + "/fields"


def document(meter, name):
    """Return the array's metadata, from the server's own folder."""
    return json.loads(meter.path(f"{name}/zarr.json").read_text())


def consume(meter, epochs):
    """Check the batches of each epoch as they come, (samples, 180, 360) each: every sample once an epoch."""
    made = time.perf_counter()
    with meter:
        # The meter collects garbage first, 0.1 s with torch loaded. No batch waits for that.
        meter.began += time.perf_counter() - made
        meter.epochs = meter.told["epochs"] = EPOCHS
        for _, batches in zip(range(EPOCHS), epochs, strict=False):
            seen = set()
            for batch in batches:
                if "first_s" not in meter.told:
                    meter.told["first_s"] = time.perf_counter() - meter.began
                check(meter, batch, seen)
            if len(seen) != len(meter.keys):
                raise SystemExit(f"{len(seen)} samples of {len(meter.keys)} came")


def check(meter, batch, seen):
    """Count a batch's samples, which ``seen`` does not have yet; the values of some are compared."""
    for field in batch:
        number = int(field[0, 0])
        if number in seen:
            raise SystemExit(f"sample {number} came twice")
        seen.add(number)
        meter.check(meter.keys[number], memoryview(field).cast("B"))
