"""The memory that all processes may use is the machine's, or less where a control group says so."""

from __future__ import annotations

import os

from penstock.engine.node.member import memory_bytes

found = memory_bytes.__wrapped__


def test_the_smallest_limit_counts(tmp_path):
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    two, one = tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes"
    files = str(two), str(one)
    assert found(files) == machine
    two.write_text("max\n")
    assert found(files) == machine
    two.write_text(f"{64 << 20}\n")
    assert found(files) == 64 << 20
    one.write_text(str(2**63 - 4096))
    assert found(files) == 64 << 20
