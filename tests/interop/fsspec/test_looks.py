"""A look that pyarrow has taken serves two files, for a while, and nothing else."""

from __future__ import annotations

from penstock.interop.fsspec import filesystem as looks
from penstock.interop.fsspec.filesystem import Looks, asked_by_pyarrow
from penstock.values import ObjectMeta

META = ObjectMeta("k", 3, "e")


def test_a_look_serves_two_files():
    kept = Looks()
    kept.keep("b/k", META)
    assert [kept.take("b/k") for _ in range(3)] == [META, META, None]
    assert kept.take("b/other") is None


def test_a_look_is_forgotten_in_time_and_when_the_file_is_written(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(looks, "monotonic", lambda: now[0])
    kept = Looks()
    for forget in (lambda: kept.forget("b/k"), kept.forget, lambda: now.__setitem__(0, now[0] + 6)):
        kept.keep("b/k", META)
        forget()
        assert kept.take("b/k") is None


def test_looks_are_bounded():
    kept = Looks()
    for number in range(1000):
        kept.keep(str(number), META)
    assert kept.take("999") == META
    assert kept.take("0") is None
    assert len(kept._looks) <= 256


def test_only_pyarrow_is_pyarrow():
    assert not asked_by_pyarrow()
    scope = {"__name__": "pyarrow.fs", "look": lambda: asked_by_pyarrow()}  # noqa: PLW0108  a frame of its own
    exec("def handler():\n    return look()", scope)  # noqa: S102  a function of a module of that name
    assert scope["handler"]() == "handler"
