"""Train on documents of two sources, which grain mixes by weights and packs into rows; Penstock reads them.

    python examples/grain_mixture.py s3://bucket/web/ s3://bucket/code/ --run s3://bucket/runs/1/ --steps 20

The folders have token files of datatrove. A second run continues after the last step. Needs `pip install grain`.
"""

import argparse
from contextlib import closing

import grain
import torch

import penstock as ps

ROW, READ, ROWS = 256, 64, 4  # tokens of a row, documents that are read at once, rows of a batch


class Pieces(grain.experimental.FlatMapTransform):
    """Cuts the documents of a read where they are longer than a row."""

    max_fan_out = 1 << 20

    def flat_map(self, element):
        """Return the tokens of each piece, and for each token the next one."""
        cut = [tokens[at : at + ROW + 1] for tokens in element for at in range(0, len(tokens) - 1, ROW)]
        return [{"tokens": each[:-1].astype("int64"), "labels": each[1:].astype("int64")} for each in cut]


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folders", nargs=2, help="folders of tokens with documents")
parser.add_argument("--run", required=True, help="the folder for checkpoints")
parser.add_argument("--steps", type=int, default=20)
options = parser.parse_args()
how = {"length": None, "documents": True, "dtype": "uint16", "output": "numpy"}
web, code = (ps.TokenDataset.from_shards(each, **how) for each in options.folders)
both = ps.concat(web, code)
numbers = [grain.MapDataset.range(len(web)), grain.MapDataset.range(len(web), len(both))]
mixed = grain.MapDataset.mix([each.seed(1).shuffle().repeat() for each in numbers], weights=[3, 1])
read = mixed.batch(READ).map(both.__getitems__).to_iter_dataset(grain.ReadOptions(2, 4))
pieces, lengths = grain.experimental.FlatMapIterDataset(read, Pieces()), {"tokens": ROW, "labels": ROW}
rows = grain.experimental.FirstFitPackIterDataset(pieces, length_struct=lengths, num_packing_bins=16)
model = torch.nn.Sequential(torch.nn.Embedding(1 << 16, 8), torch.nn.Linear(8, 1 << 10))
optimizer, run = torch.optim.Adam(model.parameters(), lr=0.01), ps.CheckpointManager(options.run, keep_last=2)
with closing(iter(rows.batch(ROWS))) as batches:
    if first := run.latest() or 0:
        state = run.restore()
        model.load_state_dict(state["model"])
        batches.set_state(state["data"])
    for step in range(first + 1, options.steps + 1):
        batch = {name: torch.from_numpy(values) for name, values in next(batches).items()}
        kept = batch["labels_segment_ids"] > 0
        loss = torch.nn.functional.cross_entropy(model(batch["tokens"])[kept], batch["labels"][kept])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            run.save(step, {"model": model.state_dict(), "data": batches.get_state()})
            print(f"step {step}: loss {loss:.3f} on {len(web)} and {len(code)} documents")
