"""`import penstock` is cheap: a command line, a worker and a notebook pay for it every time."""

from __future__ import annotations

import os
import subprocess
import sys

LIMIT_S = 0.150
RUNS = 9


def test_importing_loads_nothing_heavy():
    look = "import sys, penstock; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = set(
        subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True).stdout.split()
    )
    assert "penstock" in loaded
    assert loaded.isdisjoint({"torch", "botocore", "pyarrow", "rich", "typer", "moto", "sklearn", "PIL"})


def test_importing_is_quick():
    # Of CPU time, which a busy machine hardly adds to. Noise only ever adds, so the best of several is the nearest to
    # the truth; the two take turns to share it fairly.
    runs = [(_seconds("pass"), _seconds("import penstock")) for _ in range(RUNS)]
    empty, importing = (min(each) for each in zip(*runs, strict=True))
    assert importing - empty < LIMIT_S


def _seconds(code):
    process = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
    _, status, used = os.wait4(process, 0)
    assert status == 0
    return used.ru_utime + used.ru_stime
