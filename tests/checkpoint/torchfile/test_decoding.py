"""What a file says stands for a value is made into that value, or left: nothing else is made, and nothing is run."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from penstock.checkpoint.torchfile.encoding import decode_value


def test_an_array_as_penstock_saved_it_before_it_saved_buffers_is_read():
    value = ("penstock.value", "array", "<f8", (2, 1), np.arange(2.0).tobytes())
    assert decode_value([value])[0].tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize(
    "said",
    [
        ("no such kind", 1),
        (),
        (["range"],),
        ("range", "x"),
        ("array", "O", (1,), b"12345678"),
        ("array", "<f8", (1 << 40,), b"12345678"),
        ("array", "<f8", (1 << 40,), b""),
        ("array", "(100000,100000)f8", (1,), b""),
        ("scalar", "<f8", b"1234567812345678"),
        ("scalar", "|V8", b"12345678"),
        ("enum", "os", "system", "x"),
        ("enum", "builtins", "eval", "x"),
        ("enum", "no.such.module", "Color", "RED"),
        ("path", "_local", "x"),
        ("datetime", "yesterday", 0, None),
        ("datetime", "2026-01-01", 0, "../../etc/passwd"),
        ("frozenset", ([],)),
        ("set", ("penstock.value", "range", 0, 10**12, 1)),
        ("frozenset", ("penstock.value", "range", 0, 10**12, 1)),
        ("bytes", 1 << 34),
        ("deque", ("penstock.value", "range", 0, 10**12, 1), None),
        ("defaultdict", "eval", {}),
        ("defaultdict", "list", 1),
        ("file", 1 << 34, 0),
        ("array", "|u1", (1,), 1 << 34),
        ("array", "O", (1,), torch.zeros(8, dtype=torch.uint8)),
        ("array", "<f8", (2,), torch.zeros(8, dtype=torch.uint8)),
        ("array", "<f8", (1,), torch.zeros(1, dtype=torch.float64)),
        ("array", "|u1", (1 << 40,), torch.zeros(1, dtype=torch.uint8).expand(1 << 40)),
        ("array", "|u1", (8,), torch.zeros(8, dtype=torch.uint8, device="meta")),
        ("scalar", "<f8", torch.zeros(8, dtype=torch.uint8)),
        ("file", torch.zeros(8, dtype=torch.uint8), 0),
    ],
    ids=repr,
)
def test_a_pickle_makes_nothing_else(said):
    value = ("penstock.value", *said)
    with pytest.warns(UserWarning, match=r"left as the tuples .*: state\['a'\]\[0\] \("):
        found = decode_value({"a": [value], "model": 1})
    assert found["a"][0] is value
    assert found["model"] == 1
