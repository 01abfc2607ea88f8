from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import pytest

from penstock.engine.node import live
from penstock.engine.node.live import Live, ask, running
from penstock.errors import ConfigError

# A process with a loop, which does what each line of its input says, and answers with a line.
LOOP = """
import os, sys
from penstock.engine.node import live
live._EVERY_S = 0.0
batches = 0
def describe():
    if batches == 3:
        raise RuntimeError("a loop continues without its description")
    return {"batches": batches}
loop = live.Live(describe)
for line in sys.stdin:
    if line == "note\\n":
        batches += 1
        loop.note()
    elif line == "fork\\n":
        if os.fork() == 0:
            inherited = loop.inherited
            del loop
            print(inherited, flush=True)
            os._exit(0)
        os.wait()
        continue
    elif line == "let go\\n":
        loop = None
    print("done", flush=True)
"""


@pytest.fixture
def where(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_NODE", str(tmp_path / "node"))
    return tmp_path / "node"


@pytest.fixture
def loop(where):  # noqa: ARG001  its variable is set
    """Start a process with a loop; a call tells it what to do and waits until that is done."""
    command = [sys.executable, "-c", LOOP]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def tell(order):
            process.stdin.write(f"{order}\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        tell.process = process
        yield tell
        process.kill()


def described(where):
    return [each.values.get("batches") for each in running(where)]


def test_first_note_tells_its_user_alone_that_there_is_a_loop(where, loop):
    loop("note")
    (found,) = running(where)
    assert (found.process, found.number, found.values) == (loop.process.pid, 1, {})
    assert stat.S_IMODE(where.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in where.iterdir()} == {0o600}


def test_a_loop_describes_itself_again_only_while_a_watcher_asks(where, loop):
    loop("note")
    assert described(where) == [None]
    assert ask() == where
    loop("note")
    assert described(where) == [2]
    loop("note")
    # The third description fails: the one before it stays.
    assert described(where) == [2]
    loop("note")
    assert described(where) == [4]
    os.utime(where / "watched", (1, 1))
    loop("note")
    assert described(where) == [4]


def test_file_of_a_killed_process_is_removed(where, loop):
    loop("note")
    loop.process.kill()
    loop.process.wait()
    assert [*where.glob("loop-*")] != []
    assert running(where) == []
    assert [*where.glob("loop-*")] == []


@pytest.mark.parametrize("order", ["let go", "end"])
def test_file_is_removed_with_the_loop_and_with_the_process(where, loop, order):
    loop("note")
    if order == "end":
        loop.process.communicate()
    else:
        loop(order)
    assert [*where.glob("loop-*")] == []


def test_forked_child_leaves_its_parents_description(where, loop):
    loop("note")
    assert loop("fork") == "True"
    assert described(where) == [None]


def test_half_a_description_is_left_out(where, loop):
    loop("note")
    (path,) = where.glob("loop-*")
    path.write_text(json.dumps({"batches": 1})[:-3])
    assert running(where) == []
    assert path.exists()


def test_without_a_directory_a_loop_is_not_described(monkeypatch, tmp_path):
    monkeypatch.setenv("PENSTOCK_NODE", "off")
    Live(dict).note()
    assert ask() is None
    monkeypatch.setenv("PENSTOCK_NODE", "relative")
    Live(dict).note()
    with pytest.raises(ConfigError, match="absolute path"):
        ask()
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    monkeypatch.setenv("PENSTOCK_NODE", str(shared))
    Live(dict).note()
    with pytest.raises(ConfigError, match="this user alone"):
        ask()
    monkeypatch.setenv("PENSTOCK_NODE", str(tmp_path / "no" / "parent"))
    with pytest.raises(ConfigError, match=r"cannot use .*parent: No such file"):
        ask()
    assert [*shared.iterdir()] == []


@pytest.mark.usefixtures("where")
def test_note_is_cheap_until_half_a_second_has_passed(monkeypatch):
    monkeypatch.setattr(live, "monotonic", lambda: 1.0)
    looked = []
    monkeypatch.setattr(live, "_asked", lambda _: looked.append(1))
    loop = Live(lambda: {"batches": 1})
    for _ in range(3):
        loop.note()
    assert looked == []
    monkeypatch.setattr(live, "monotonic", lambda: 1.6)
    loop.note()
    assert looked == [1]
