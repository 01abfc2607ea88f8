"""Writes the plain objects of a load as MDS, the shards of mosaicml-streaming, with their index.json; once."""

import json
from struct import pack

SHARD_BYTES = 32 << 20
NAMES, ENCODINGS, SIZES = ["image", "number"], ["bytes", "int"], [None, 8]


def written(folder):
    """Write FOLDER/mds, unless it is there."""
    there = folder / "mds"
    if (there / "index.json").exists():
        return
    there.mkdir()
    columns = {"column_encodings": ENCODINGS, "column_names": NAMES, "column_sizes": SIZES, "compression": None}
    config = {**columns, "format": "mds", "hashes": [], "size_limit": SHARD_BYTES, "version": 2}
    shards, samples = [], []
    for path in sorted(folder.glob("*.bin")):
        body = path.read_bytes()
        sample = pack("<I", len(body)) + body + pack("<q", int(path.stem))
        if samples and sum(map(len, samples)) + len(sample) > SHARD_BYTES:
            shards.append(_shard(there, len(shards), samples, config))
            samples = []
        samples.append(sample)
    shards.append(_shard(there, len(shards), samples, config))
    (there / "index.json").write_text(json.dumps({"shards": shards, "version": 2}))


def _shard(there, number, samples, config):
    described = json.dumps(config, sort_keys=True).encode()
    places = [4 + 4 * (len(samples) + 1) + len(described)]
    for sample in samples:
        places.append(places[-1] + len(sample))
    name = f"shard.{number:05d}.mds"
    with (there / name).open("wb") as file:
        file.writelines((pack(f"<{len(places) + 1}I", len(samples), *places), described, *samples))
    raw = {"basename": name, "bytes": places[-1], "hashes": {}}
    return {**config, "raw_data": raw, "samples": len(samples), "zip_data": None}
