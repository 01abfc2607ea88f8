"""The story of docs/torchtitan.md: train undisturbed, train with three kills on 2, 2, 3 and 1 ranks, compare."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import penstock as ps
from examples.llm.story import Attempt, Life, follow, joined
from penstock.cli.demo.story import borrow_prefix, embedded
from penstock.cli.screen import Screen
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTH, ROWS, STEPS, EPOCHS = 64, 12, 6, 2  # tokens of a row, rows of a step, steps of an epoch
PLAN = [Attempt("undisturbed", 2, 0), Attempt("disturbed", 2, 3), Attempt("disturbed", 2, 5)]
PLAN += [Attempt("disturbed", 3, 9), Attempt("disturbed", 1, 0)]


def digest(tokens: np.ndarray) -> str:
    return sha256(tokens.tobytes()).hexdigest()[:16]


def draw_tokens(draw: np.random.Generator, count: int) -> np.ndarray:
    """Return tokens of which some are frequent, so that there is something to learn."""
    return (1 + 2047 * draw.random(count) ** 4).astype("uint16")


def write_windows(url: str) -> Counter[str]:
    """Write the tokens of an epoch of windows; return the digest of each, by arithmetic alone."""
    tokens = draw_tokens(np.random.default_rng(0), STEPS * ROWS * LENGTH + 1)
    with ps.open(f"{url}tokens/windows/a.npy", "wb") as file:
        np.save(file, tokens)
    return Counter(digest(tokens[at : at + LENGTH + 1]) for at in range(0, len(tokens) - 1, LENGTH))


def write_packed(url: str) -> Counter[str]:
    """Write documents that fill an epoch of rows; return the digest of each."""
    draw, documents = np.random.default_rng(0), list[np.ndarray]()

    def write(sizes: list[int]) -> int:
        documents.extend(draw_tokens(draw, size) for size in sizes)
        ends = np.cumsum([len(each) for each in documents]).astype("uint64")
        for name, array in (("a.ds", np.concatenate(documents)), ("a.ds.index", ends)):
            with ps.open(f"{url}tokens/packed/{name}", "wb") as file:
                file.write(array.tobytes())
        return len(ps.TokenDataset.from_shards(f"{url}tokens/packed/", length=LENGTH, pack="best-fit"))

    # A document of a row's length takes a row to itself: so an epoch has a whole number of steps.
    write([LENGTH] * (STEPS * ROWS - write(draw.integers(9, LENGTH, 100).tolist())))
    return Counter(map(digest, documents))


def tell(kind: str, write: Callable[[str], Counter[str]], url: str, screen: Screen) -> None:
    """Train undisturbed, train with kills, and compare; raise ``PenstockError`` if rows or losses differ."""
    epoch, lives, began = write(url), list[Life](), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for number, each in enumerate(PLAN):
            log, run = Path(folder) / f"{number}", f"{url}runs/{kind}/{each.name}"
            words = ["examples.torchtitan.train", "--log", str(log), "--module", "examples.torchtitan"]
            words += ["--config", kind, "--dataloader.dataset_path", f"{url}tokens/{kind}/", "--checkpoint.folder", run]
            # The default of torchtitan 0.3.0 needs a newer PyTorch than 2.13.
            words += ["--dump_folder", folder, "--parallelism.spmd_backend", "partial_dtensor"]
            with screen.bar(f"{kind}, {each.name}, {each.ranks}", STEPS * EPOCHS) as show:
                lives.append(follow(words, log, each, show))
            fate = "a rank was killed after" if each.kill_at else "ended after"
            ranks = "1 rank" if each.ranks == 1 else f"{each.ranks} ranks"
            screen.say(each.name, f"{ranks} from step {lives[-1].began}: {fate} step {max(lives[-1].steps)}")
    (wanted, right), (found, losses) = joined(lives[:1]), joined(lives[1:])
    differ = [step for step in range(1, STEPS * EPOCHS + 1) if wanted.get(step) != found.get(step)]
    epochs = [sum((found[step + first] for step in range(1, STEPS + 1)), Counter()) for first in (0, STEPS)]
    once = all(each == epoch for each in epochs)
    twins = [lives[0].losses[step] == loss for life in lives[1:3] for step, loss in life.losses.items()]
    far = max(abs(losses[step] - right[step]) for step in right)
    screen.title(f"Report on {kind}, after {time.perf_counter() - began:.0f} s")
    screen.say("resumed", "3 times, on 2, 3 and 1 ranks")
    times = "each once" if once else "not each once"
    screen.say("delivered", f"{epoch.total():,} {NAMES[kind]}, {times} in both epochs")
    screen.say("steps", f"{len(found)}, of which {len(differ)} have other rows than without kills")
    bits = f"on 2 ranks {sum(twins)} of {len(twins)} equal bit by bit"
    screen.say("loss", f"{right[1]:.4f} to {right[STEPS * EPOCHS]:.4f}; {bits}")
    screen.say("", f"largest difference on 2, 3 and 1 ranks {far:.1g}")
    if differ or not once or len(found) != STEPS * EPOCHS or not all(twins):
        raise PenstockError("the resumed training is not the one that was killed: please report it")


def main() -> None:
    """Read the options and tell the story of each kind of rows."""
    parser = argparse.ArgumentParser(prog="python -m examples.torchtitan", description=__doc__)
    parser.add_argument("--bucket", help="your own bucket, such as s3://bucket; default: one in memory")
    parser.add_argument("--endpoint", help="endpoint of an S3 bucket")
    parser.add_argument("--keep", action="store_true", help="leave what was written to your own bucket")
    parser.add_argument("--rows", choices=WRITERS, help="only windows, or only packed rows")
    given, screen = parser.parse_args(), Screen()
    screen.title("Penstock in torchtitan: three kills, and no row is missed or repeated")
    place = borrow_prefix(given.bucket, given.endpoint, keep=given.keep) if given.bucket else embedded("s3")
    with place as url:
        for kind in [given.rows] if given.rows else WRITERS:
            tell(kind, WRITERS[kind], url, screen)


WRITERS = {"windows": write_windows, "packed": write_packed}
NAMES = {"windows": "windows", "packed": "documents"}

if __name__ == "__main__":
    main()
