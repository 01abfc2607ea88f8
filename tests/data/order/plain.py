"""Orders computed once more, place by place, with Python's integers and lists."""

from __future__ import annotations

import hashlib
import itertools
import math

from penstock.data.order.shuffle import Permutation

_WORD = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def _mixed(value):
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ value >> shift) * factor & _WORD
    return value ^ value >> 31


def within(place, size, name, seed, epoch, kind):
    """The definition of ``permute_within`` for one place."""
    digest = hashlib.sha256(f"penstock sets 1: {seed} {epoch} {kind}".encode()).digest()
    first, second = (int.from_bytes(digest[at : at + 8], "little") for at in (0, 8))
    key = _mixed(_mixed((name + 1) * _GAMMA + first & _WORD) ^ second)
    if size < 64:
        hashes = [_mixed((each + 1) * _GAMMA + key & _WORD) for each in range(size)]
        return sorted(hashes).index(hashes[place])
    height = math.ceil(math.sqrt(size))
    width = -(-size // height)
    while True:
        left, right = divmod(place, width)
        sizes = height, width
        for turn in range(8):
            hashed = _mixed(right ^ (key + turn * _GAMMA & _WORD)) >> 32
            left, right = right, (left + (hashed * sizes[turn % 2] >> 32)) % sizes[turn % 2]
        place = left * width + right
        if place < size:
            return place


def windowed(sizes, seed, epoch, window):
    """The definition of a sliding window over one lane: groups of blocks, steps that take a part of each, all mixed."""
    permuted = Permutation(len(sizes), seed, epoch, "blocks ").block(0, len(sizes)).tolist()
    window = max(1, min(window, len(sizes)))
    parts = max(1, min(8, window, sum(sizes) * window // max(1, len(sizes)) // 256))
    filled = [place for place, block in enumerate(permuted) if sizes[block]] or [0]
    permuted = permuted[filled[0] : filled[-1] + 1]
    count = math.ceil(len(permuted) * parts / window)
    steps: list[list[int]] = [[] for _ in range(max(1, count - parts + 1))]
    begin = 0
    for number in range(count):
        some = permuted[number * window // parts : (number + 1) * window // parts]
        group = [sum(sizes[:block]) + each for block in some for each in range(sizes[block])]
        mixed = [
            group[within(place, len(group), begin, seed, epoch, "group")] if parts > 1 else group[place]
            for place in range(len(group))
        ]
        begin += len(group)
        shared = range(max(0, number - parts + 1), min(number, len(steps) - 1) + 1)
        share, rest = divmod(len(group), len(shared))
        for turn, step in enumerate(shared):
            steps[step] += mixed[share * turn + min(rest, turn) : share * (turn + 1) + min(rest, turn + 1)]
    order: list[int] = []
    for step in steps:
        begin = len(order)
        order += [step[within(place, len(step), begin, seed, epoch, "window")] for place in range(len(step))]
    return order


class EqualLanes:
    """The definition of lanes over equal blocks, at any place of any number of them; the last block is whole."""

    def __init__(self, blocks, size, seed, epoch, window, lanes):
        self.n, self.size, self.key, self.window, self.lanes = blocks * size, size, (seed, epoch), window, lanes
        self.blocks = Permutation(blocks, seed, epoch, "blocks ")
        self.parts = max(1, min(8, window, self.n * window // blocks // 256))

    def at(self, position):
        index, lane = divmod(position, self.lanes)
        border = [each * (self.n // self.lanes) + min(each, self.n % self.lanes) for each in (lane, lane + 1)]
        place = border[0] + index if lane % 2 == 0 else border[1] - 1 - index
        first = border[0] // self.size
        pieces = (border[1] - 1) // self.size - first + 1
        count = -(-pieces * self.parts // self.window)
        last = max(count - self.parts, 0)

        def start(group):
            rank = first + min(min(max(group, 0), count) * self.window // self.parts, pieces)
            return min(max(rank * self.size, border[0]), border[1])

        def taken(group, step):
            """Return how many samples of a group the steps before this one take."""
            comes = max(group - self.parts + 1, 0)
            turns = min(group, last) - comes + 1
            share, rest = divmod(start(group + 1) - start(group), turns)
            passed = min(max(step - comes, 0), turns)
            return share * passed + min(rest, passed)

        def begin(step):
            return start(step) + sum(taken(group, step) for group in range(step, min(step + self.parts, count)))

        own = ((place // self.size - first + 1) * self.parts - 1) // self.window
        step = min(own, last)
        while step and begin(step) > place:
            step -= 1
        begins = begin(step)
        groups = range(step, min(step + self.parts, count))
        sizes = [taken(group, step + 1) - taken(group, step) for group in groups]
        at = within(place - begins, sum(sizes), begins, *self.key, "window")
        ends = [*itertools.accumulate(sizes)]
        turn = next(turn for turn, end in enumerate(ends) if at < end)
        group = groups[turn]
        at += taken(group, step) + sizes[turn] - ends[turn]
        if self.parts > 1:
            at = within(at, start(group + 1) - start(group), start(group), *self.key, "group")
        found = start(group) + at
        return self.blocks.at(found // self.size) * self.size + found % self.size
