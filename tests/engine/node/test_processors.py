"""How many processors a process may use."""

from __future__ import annotations

import os

from penstock.engine.node.member import processors
from tests.children import in_child


def test_a_scheduler_s_choice_counts():
    def one():
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        assert processors() == 1

    assert processors() == len(os.sched_getaffinity(0))
    in_child(one)


def test_without_one_the_machine_s_count(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    assert processors() == os.cpu_count()
