"""Train a small language model on a mixture of packed documents: what torchrun starts, on any number of ranks.

A step takes the same rows on any number of ranks, so a run that was killed goes on with as many ranks as there are.
"""

from __future__ import annotations

import argparse
import json
import os
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

import penstock as ps
from examples.llm.prepare import LENGTH, SOURCES, VOCABULARY, open_rows
from penstock.checkpoint.dcp import StorageReader, StorageWriter

if TYPE_CHECKING:
    from torch import Tensor

ROWS = 12  # of a step, over all ranks: so 1, 2, 3, 4, 6 or 12 ranks take as many each
SAVE_EVERY = 10  # steps
_WIDTH, _HEADS, _LAYERS = 96, 4, 3


class Block(nn.Module):
    """Attention within each document, and a layer for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.qkv, self.out = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.mlp = nn.Sequential(nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows, length, _ = x.shape
        q, k, v = self.qkv(self.before(x)).view(rows, length, 3, _HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, _WIDTH))
        return x + self.mlp(self.after(x))


class Model(nn.Module):
    """A transformer that sees, from each token, the tokens before it in its document."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, _WIDTH), nn.Embedding(LENGTH, _WIDTH)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(_LAYERS)), nn.LayerNorm(_WIDTH)
        for each in (self.tokens, self.places):
            nn.init.normal_(each.weight, std=0.02)

    def forward(self, tokens: Tensor, places: Tensor, documents: Tensor) -> Tensor:
        before = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=tokens.device).tril()
        mask = (documents[:, None, :, None] == documents[:, None, None, :]) & before
        x = self.tokens(tokens) + self.places(places)
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x) @ self.tokens.weight.T


def loss_of(model: nn.Module, batch: ps.PackedBatch) -> Tensor:
    """Return the sum of the losses of all tokens that have a label."""
    logits = model(batch.tokens, batch.position_ids, batch.document_ids)
    return cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), reduction="sum")


def mixture(url: str, steps: int) -> ps.Mix:
    """Return the three sources: most rows are of the manual in the beginning, and of code in the end."""
    begin, end = {"manual": 6, "notes": 4, "code": 2}, {"manual": 2, "notes": 2, "code": 8}
    weights = ps.order.Schedule([(0, begin), (steps * ROWS, end)])
    return ps.Mix({name: open_rows(url, name) for name in SOURCES}, weights=weights, epoch_samples=steps * ROWS)


def validate(url: str, model: nn.Module) -> float:
    """Return the mean loss of the documents that were held out."""
    total, count = 0.0, 0
    with torch.inference_mode():
        for batch in ps.DataLoader(open_rows(url, "valid"), ROWS, place="unsharded"):
            total += loss_of(model, batch).item()
            count += int((batch.labels >= 0).sum())
    return total / count


def main() -> None:
    """Train up to a step, from the newest checkpoint; log each step of each rank, for those who count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="folder with tokens/, as prepare.py makes it")
    parser.add_argument("--run", required=True, help="folder for checkpoints")
    parser.add_argument("--log", required=True, type=Path, help="file for lines of JSON; the rank is appended")
    parser.add_argument("--steps", type=int, default=120)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    # A rank that dies is noticed by torchrun; the others must not wait for it for half an hour.
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    with given.log.with_suffix(f".{rank}.jsonl").open("a") as file:

        def report(**values: Any) -> None:
            file.write(json.dumps(values) + "\n")
            file.flush()

        train(given, world, report)
        dist.destroy_process_group()


def train(given: argparse.Namespace, world: int, report: Any) -> None:
    """Train, and save in the background."""
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = ps.DataLoader(mixture(given.url, given.steps), ROWS // world, shuffle=True, seed=1)
    run, step = ps.CheckpointManager(given.run), 0
    # On all ranks the same one, although another save may end just now.
    latest = [run.latest()]
    dist.broadcast_object_list(latest)
    if latest[0]:
        step = restore(f"{given.run}{latest[0]:012d}", model, optimizer, loader)
    report(pid=os.getpid(), began=step, world=world)
    parallel, saving, group = DistributedDataParallel(model), None, dist.new_group(backend="gloo")
    began = perf_counter()
    for batch in loader:
        waited_s = perf_counter() - began
        count = (batch.labels >= 0).sum()
        dist.all_reduce(count)
        loss = loss_of(parallel, batch)
        # DDP takes the mean over ranks; the loss is that of all tokens of the step.
        optimizer.zero_grad()
        (loss * world / count).backward()
        optimizer.step()
        step += 1
        total = loss.detach()
        dist.all_reduce(total)
        rows = [sha256(row.numpy().tobytes()).hexdigest()[:12] for row in batch.tokens]
        took_s = perf_counter() - began
        report(step=step, rows=rows, loss=(total / count).item())
        report(tokens=batch.labels.numel(), waited_s=waited_s, took_s=took_s)
        if step % SAVE_EVERY == 0:
            if saving is not None:
                saving.result()
            saving = save(f"{given.run}{step:012d}", model, optimizer, loader, group)
        began = perf_counter()
    if saving is not None:
        saving.result()
    if dist.get_rank() == 0:
        report(validation=validate(given.url, model))
    dist.barrier()


def save(url: str, model: nn.Module, optimizer: Any, loader: ps.DataLoader, group: Any) -> Any:
    """Begin to save; training goes on. Collectives of the save have a group to themselves."""
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "loader": json.dumps(loader.state_dict())}
    return dcp.async_save(state, storage_writer=StorageWriter(url), process_group=group)


def restore(url: str, model: nn.Module, optimizer: Any, loader: ps.DataLoader) -> int:
    """Load a step; return its number."""
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "loader": ""}
    dcp.load(state, storage_reader=StorageReader(url))
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    loader.load_state_dict(json.loads(state["loader"]))
    return int(url[-12:])


if __name__ == "__main__":
    main()
