"""The story of docs/llm.md: prepare, train undisturbed, train with two kills on 2, 3 and 1 ranks, compare."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from examples.llm import prepare
from examples.llm.train import ROWS, SAVE_EVERY
from penstock.cli.demo.story import borrow_prefix, embedded
from penstock.cli.screen import Screen
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_POLL_S = 0.05


class Attempt(NamedTuple):
    """A training to start: the folder of its run, its ranks, and the step at which one of them is killed; 0: none."""

    name: str
    ranks: int
    kill_at: int


@dataclass(frozen=True, slots=True)
class Life:
    """A training from its start to its end or its death.

    Attributes:
        ranks: Number of ranks.
        began: The step of the checkpoint that it resumed.
        steps: By number, the rows of all ranks.
        losses: By number, the loss of the step.
        reports: All lines of its logs.

    """

    ranks: int
    began: int
    steps: dict[int, Counter[str]]
    losses: dict[int, float]
    reports: list[dict[str, Any]]


def read_life(log: Path, ranks: int) -> Life:
    """Return what the ranks of a training logged; a step counts if all of them have it."""
    lines = [[json.loads(line) for line in whole_lines(log.with_suffix(f".{rank}.jsonl"))] for rank in range(ranks)]
    reports = [each for its in lines for each in its]
    done = set.intersection(*({each["step"] for each in its if "step" in each} for its in lines))
    steps: dict[int, Counter[str]] = {step: Counter() for step in sorted(done)}
    losses = {}
    for each in reports:
        if each.get("step") in done:
            steps[each["step"]].update(each["rows"])
            losses[each["step"]] = each["loss"]
    return Life(ranks, next((each["began"] for each in reports if "began" in each), 0), steps, losses, reports)


def whole_lines(path: Path) -> list[str]:
    """Return the lines of a file; a process that was killed may have left half a line."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


def train(url: str, log: Path, attempt: Attempt, steps: int, show: Callable[[float], None]) -> Life:
    """Train in processes of their own, and follow their logs; end the rank that is to be killed by SIGKILL."""
    words = ["examples.llm.train", url, "--run", f"{url}{attempt.name}/", "--log", str(log), "--steps", str(steps)]
    return follow(words, log, attempt, show)


def follow(words: list[str], log: Path, attempt: Attempt, show: Callable[[float], None]) -> Life:
    """Run a module with its arguments under torchrun, follow the logs of its ranks, and kill one as planned."""
    ranks, kill_at = attempt.ranks, attempt.kill_at
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={ranks}"]
    command += [f"--master-port={port}", "-m", "--", *words]
    errors, one_thread = log.with_suffix(".err"), {**os.environ, "OMP_NUM_THREADS": "1"}
    with errors.open("w") as out:
        # A Ctrl-C at the terminal reaches the group of torchrun only through this process.
        process = subprocess.Popen(command, stdout=out, stderr=out, process_group=0, env=one_thread)  # noqa: S603  our own command
        killed = False
        try:
            while process.poll() is None:
                time.sleep(_POLL_S)
                life = read_life(log, ranks)
                last = max(life.steps, default=life.began)
                show(last)
                if kill_at and last >= kill_at and not killed:
                    os.kill(next(each["pid"] for each in reversed(life.reports) if "pid" in each), signal.SIGKILL)
                    killed = True
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if process.returncode and not killed:
        raise PenstockError(f"the training ended with status {process.returncode}: {errors.read_text()[-2000:]}")
    return read_life(log, ranks)


def joined(lives: Iterable[Life]) -> tuple[dict[int, Counter[str]], dict[int, float]]:
    """Return rows and losses by step, as the model saw them: steps after a checkpoint that was resumed are undone."""
    steps: dict[int, Counter[str]] = {}
    losses: dict[int, float] = {}
    for life in lives:
        steps = {step: rows for step, rows in steps.items() if step <= life.began} | life.steps
        losses = {step: loss for step, loss in losses.items() if step <= life.began} | life.losses
    return steps, losses


def tell(*, bucket: str | None = None, endpoint: str | None = None, steps: int = 120, keep: bool = False) -> None:
    """Run all of it, and print what was found.

    Raises:
        PenstockError: Rows were missed or repeated, or a training failed.
    """
    began, screen = time.perf_counter(), Screen()
    screen.title("Penstock: from text to a language model, with two kills on the way")
    place = borrow_prefix(bucket, endpoint, keep=keep) if bucket else embedded("s3")
    with place as url, tempfile.TemporaryDirectory() as folder:
        screen.say("bucket", url)
        counts = prepare.upload(url)
        screen.say("text", ", ".join(f"{count:,} of {name}" for name, count in counts.items()))
        version = prepare.make_tokenizer(url)
        done = prepare.tokenise(url, version, processes=min(2, os.cpu_count() or 1))
        tokens = sum(each.tokens for each in done.values())
        screen.say("tokens", f"{tokens:,} of {sum(each.kept for each in done.values()):,} documents, by ps.map")
        rows = prepare.plan_rows(url)
        packed = ", ".join(f"{len(each):,} of {name} ({each.padding:.2%} padding)" for name, each in rows.items())
        screen.say("rows", f"{packed}; {prepare.LENGTH} tokens each")
        # Between two checkpoints, so that steps are lost, and done again.
        kills = [(steps * part // 3) // SAVE_EVERY * SAVE_EVERY + SAVE_EVERY // 2 for part in (1, 2)]
        plan = [Attempt("undisturbed", 2, 0), Attempt("disturbed", 2, kills[0])]
        plan += [Attempt("disturbed", 3, kills[1]), Attempt("disturbed", 1, 0)]
        lives: list[Life] = []
        for number, each in enumerate(plan):
            with screen.bar(f"{each.name}, {each.ranks}", steps) as show:
                life = train(url, Path(folder) / f"{number}", each, steps, show)
            lives.append(life)
            fate = "a rank was killed after" if each.kill_at else "ended after"
            ranks = "1 rank" if each.ranks == 1 else f"{each.ranks} ranks"
            screen.say(each.name, f"{ranks} from step {life.began}: {fate} step {max(life.steps)}")
        report(screen, lives, steps, time.perf_counter() - began)


def report(screen: Screen, lives: list[Life], steps: int, elapsed_s: float) -> None:
    """Compare the disturbed training with the undisturbed one; raise ``PenstockError`` if rows differ."""
    (wanted, right), (found, losses) = joined(lives[:1]), joined(lives[1:])
    missed = sum((rows - found.get(step, Counter())).total() for step, rows in wanted.items())
    repeated = sum((rows - wanted.get(step, Counter())).total() for step, rows in found.items())
    far = max(abs(losses[step] - right[step]) for step in right if step in losses)
    timed = [each for life in lives for each in life.reports if "took_s" in each]
    screen.title(f"Report, after {elapsed_s:.0f} s")
    again = sum(len(life.steps) for life in lives[1:]) - steps
    screen.say("resumed", f"{len(lives) - 2} times, on another number of ranks; {again} steps were done again")
    screen.say("delivered", f"{steps * ROWS:,} rows in {steps} steps: {missed} missed, {repeated} repeated")
    screen.say("loss", f"{right[1]:.2f} to {right[steps]:.2f}; largest difference to the undisturbed run {far:.1g}")
    validation = [next((each["validation"] for each in life.reports if "validation" in each), 0.0) for life in lives]
    screen.say("validation", f"{validation[-1]:.4f}, undisturbed {validation[0]:.4f}")
    took_s, waited_s, tokens = (sum(each[name] for each in timed) for name in ("took_s", "waited_s", "tokens"))
    waiting = f"{waited_s / took_s:.1%} of the time waiting for data"
    screen.say("speed", f"{tokens / took_s:,.0f} tokens/s and rank, {waiting}")
    if missed or repeated or len(found) != steps:
        raise PenstockError("the resumed training is not the one that was killed: please report it")
