"""``penstock seen``: the samples that a run received up to a checkpoint, computed from its position in the data."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any

from typer import Argument, Option, Typer

import penstock as ps
from penstock.cli.options import JsonLines, Store, import_function, with_store
from penstock.cli.output import harmless_lines, json_line, write
from penstock.display import counted
from penstock.errors import Unusable

app = Typer()
_IN_BLOCKS = re.compile(r"(blocks|lanes) \d+: (?:(\d+) samples|\d+ of sizes \w+), window (\d+)")
_TAIL = "pass --tail short, pad or drop, as the loader had it"
_ASSUMED = 'samples that on_error="skip" left out of their batches are included'


@app.command(
    epilog="Examples: penstock seen s3://bucket/run/ 4000 --catalog train.catalog; "
    "penstock seen s3://bucket/run/ 4000 --since start --loader train:make_loader"
)
@with_store
def seen(
    url: Annotated[str, Argument(metavar="RUN", help="The run: s3://bucket/run/.")],
    step: Annotated[int, Argument(metavar="STEP", help="A committed step, saved with loader=.")],
    *,
    since: Annotated[
        str | None, Option(metavar="STEP|start", help="An earlier step, or the beginning. Default: the step before.")
    ] = None,
    catalog: Annotated[str | None, Option(metavar="URL", help="The saved catalog, which has the names.")] = None,
    loader: Annotated[
        str | None, Option(metavar="MODULE:NAME", help="The run's loader, or a function that makes it.")
    ] = None,
    tail: Annotated[str | None, Option(metavar="short|pad|drop", help="The loader's tail=, without --loader.")] = None,
    ranks: Annotated[int | None, Option(metavar="N", min=1, help="Ranks of the run, which repeats depend on.")] = None,
    json: JsonLines = False,
    store: Store,
) -> None:
    """List the samples that a run received between two checkpoints: batch over all ranks, index and, if known, name.

    Nothing of the data is read. The order is made again from the saved position; a mixture, weights or an order of your
    own need --loader. Each pair of committed steps on the way is compared, so that a run which went on with another
    global batch is listed right.
    """
    if loader is not None and (catalog is not None or tail is not None):
        raise Unusable("--loader has the catalog and the tail: leave --catalog and --tail out")
    run = ps.CheckpointManager(url, store=store)
    states: list[Any] = [None if each is None else run.position(each) for each in _choose_steps(run, step, since)]
    given = None if loader is None else _find_loader(loader)
    saved = None if catalog is None else ps.Catalog.open(catalog, store=store)
    number = samples = 0
    notes: dict[str, None] = {} if given is not None else {_ASSUMED: None}
    for earlier, later in pairwise(states):
        own = _make_order(later, saved, tail) if given is None else given
        if given is None and saved is None:
            earlier, later = (each and {**each, "catalog": ""} for each in (earlier, later))  # noqa: PLW2901  without names
        found = own.seen(later, earlier, ranks=ranks)
        if given is None and found.samples and _ends_short(earlier, later):
            if tail is None:
                raise Unusable(f"the last batch of an epoch is incomplete: {_TAIL}")
            if tail == "short" and ranks is None:
                notes["an incomplete batch repeats samples if it has fewer than ranks: pass --ranks for these"] = None
        notes.update(dict.fromkeys(found.notes))
        for lines in _rows(found, number, named=given is not None or saved is not None, as_json=json):
            write(lines)
        number, samples = number + len(found), samples + found.samples
    print(f"{counted(samples, 'sample')}, {number:,} global batches", file=sys.stderr)
    for note in notes:
        print(f"penstock: {note}", file=sys.stderr)


def _choose_steps(run: ps.CheckpointManager, step: int, since: str | None) -> list[int | None]:
    """Return the committed steps from one to another; None is the beginning of the run."""
    known: list[int | None] = [None, *(each for each in run.steps() if each < step)]
    if since is None:
        return [known[-1], step]
    if since == "start":
        return [*known, step]
    if not since.isdecimal() or int(since) not in known:
        raise Unusable(f"--since must be a committed step before {step}, or start, got {since}", url=run.url)
    return [*known[known.index(int(since)) :], step]


def _find_loader(name: str) -> Any:  # noqa: ANN401  a loader or batches
    found: Any = import_function(name)
    found = found() if callable(found) and not hasattr(found, "seen") else found
    if not hasattr(found, "seen"):
        raise Unusable(f"--loader {name} must be or make a ps.DataLoader, got {type(found).__name__}")
    return found


def _make_order(state: dict[str, Any], catalog: ps.Catalog | None, tail: str | None) -> Any:  # noqa: ANN401  batches
    """Return batches in the order that a state was taken in."""
    identity, seed = state.get("order"), state["seed"]
    shuffle: Any = seed is not None
    if known := identity is None:
        sizes = True
    elif (parsed := _IN_BLOCKS.fullmatch(identity)) and "mixture" not in state:
        sizes = parsed[2] is not None
        kind = {"blocks": ps.order.BlockShuffle, "lanes": ps.order.Lanes}[parsed[1]]
        shuffle = kind(int(parsed[2]) if sizes else None, window_blocks=int(parsed[3]))
    else:
        raise Unusable(f"cannot make the order {identity!r:.60} from its name: pass --loader MODULE:NAME")
    options: dict[str, Any] = {"shuffle": shuffle, "seed": seed or 0, "tail": tail or "short"}
    if catalog is None and sizes:
        return ps.BatchSampler(range(state["samples"]), state["global_batch"], **options)
    if catalog is None:
        raise Unusable("the blocks of this order are cut by bytes: pass --catalog or --loader")
    made = ps.MapDataset.from_catalog(catalog).batched(state["global_batch"], list, **options)
    if not known and identity != made.plan.order.identity:
        raise Unusable("the blocks of this order have other sizes than by default: pass --loader MODULE:NAME")
    return made


def _ends_short(earlier: dict[str, Any] | None, later: dict[str, Any]) -> bool:
    """Return whether an epoch whose last batch is incomplete ended between two states."""
    epoch = 0 if earlier is None else earlier["epoch"]
    ended = later["epoch"] > epoch or later["position"] == later["samples"]
    return bool(ended and later["samples"] % later["global_batch"])


def _rows(found: Any, first: int, *, named: bool, as_json: bool) -> Iterator[str]:  # noqa: ANN401  SeenBatches
    """Yield the lines of each batch; without names, those are arrays of numbers."""
    if not named:
        for number, batch in enumerate(found, first):
            rows = [{"batch": number, "index": index} for index in batch.tolist()]
            texts = [f"{number:>8} {row['index']:>12}" for row in rows]
            yield "".join(f"{each}\n" for each in (map(json_line, rows) if as_json else texts))
        return
    for number in range(len(found)):
        samples, lines = found.inspect(number), []
        for each in samples:
            row = {"batch": first + number, "index": each.index, "url": each.url, "repeat": each.repeat}
            row |= {"source": each.source} if each.source else {}
            text = f"{first + number:>8} {each.index:>12}  {each.source + '  ' if each.source else ''}{each.url}"
            lines.append(json_line(row) if as_json else harmless_lines(text + (" (repeat)" if each.repeat else "")))
        yield "".join(f"{line}\n" for line in lines)
