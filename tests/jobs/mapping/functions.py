"""Functions and sources of maps, for processes that import them."""

import json
import os
import random
import signal
import time
import zlib
from pathlib import Path

import numpy as np

__all__ = ["Counting", "deadly", "fill_lines", "holding", "poison", "rows", "tokenise"]


def fill_lines(folder, seed, files=3, samples=400):
    """Write JSON lines with texts of all lengths; return their glob."""
    folder.mkdir(parents=True)
    dice = random.Random(seed)
    for number in range(files):
        with (folder / f"{number}.jsonl").open("w") as file:
            for sample in range(samples):
                words = [f"{dice.choice(['so', 'wörd', '火'])}{dice.randrange(99)}" for _ in range(dice.randrange(120))]
                file.write(json.dumps({"n": number * samples + sample, "text": " ".join(words)}) + "\n")
    return f"{folder}/*.jsonl"


def tokenise(sample):
    """Leave out every seventh sample; make two documents of every eleventh."""
    if sample["n"] % 7 == 0:
        return None
    words = [zlib.crc32(word.encode()) % 50_000 for word in sample["text"].split()] + [50_256]
    return [np.array(words), np.array(words[::-1])] if sample["n"] % 11 == 0 else np.array(words)


def rows(sample):
    if sample["n"] % 7 == 0:
        return None
    row = {"n": sample["n"], "text": sample["text"]}
    return [row, {**row, "n": -1}] if sample["n"] % 11 == 0 else row


def poison(sample):
    """Raise for two samples."""
    if sample["n"] in (5, 700):
        raise ValueError("no text here")
    return [sample["n"]]


def deadly(sample):
    """Kill the process at one sample."""
    if sample["n"] == 700 and not Path(os.environ.get("ANTIDOTE", "/none")).exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return [sample["n"]]


def holding(sample):
    """Wait at one sample while the file in HELD, which it makes, is there."""
    if sample["n"] == 700 and "HELD" in os.environ:
        held = Path(os.environ["HELD"])
        held.touch()
        while held.exists():
            time.sleep(0.02)
    return [sample["n"]]


class Counting:
    """Function that is made once in each process."""

    made = 0

    def __init__(self):
        Counting.made += 1

    def __call__(self, sample):
        return [len(sample["text"])]
