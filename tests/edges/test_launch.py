"""Programs that are forked from a nursery begin, print and end as those that have an interpreter of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.edges import launch
from tests.edges.launch import ranks, run


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "a program.py"
        path.write_text(textwrap.dedent(text), "utf-8")
        return path

    return written


ENDINGS = {
    "its last line": ("print('é', end='')", 0, "é"),
    "an exit code": ("import sys; sys.exit(3)", 3, ""),
    "a message": ("import sys; print('one', flush=True); sys.exit('two')", 1, "one\ntwo\n"),
    "an exception": ("def f():\n    1 / 0\nf()", 1, "line 2, in f"),
    "SIGKILL": ("import os; print('lost'); os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
    "SIGINT": ("import os; print('told'); os.kill(os.getpid(), 2)", -signal.SIGINT, "told\nTraceback"),
    "SIGINT, refused": (
        "import os\ntry:\n    os.kill(os.getpid(), 2)\nexcept KeyboardInterrupt:\n    print('no')",
        0,
        "no\n",
    ),
    "SIGTERM": ("import os; os.kill(os.getpid(), 15)", -signal.SIGTERM, ""),
    "SIGPIPE": ("import os\nr, w = os.pipe(); os.close(r)\nos.write(w, b'x')", 1, "BrokenPipeError"),
    "a thread": (
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()",
        0,
        "thread\n",
    ),
    "a handler": ("import atexit, sys; atexit.register(lambda: print('end')); sys.exit(4)", 4, "end\n"),
    "os._exit": ("import os; print('lost'); os._exit(5)", 5, ""),
    "a child": ("import os, time\nif not os.fork():\n    time.sleep(0.1)\n    print('child')", 0, "child\n"),
    "no such module": ("import no_such", 1, "ModuleNotFoundError"),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_forked_program_exits_and_prints_like_a_fresh_interpreter(write, name):
    text, code, printed = ENDINGS[name]
    path = write(text)
    ended = run([path], [os.environ])
    own = subprocess.run(
        [sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert ended.returncode == code == own.returncode
    assert printed in ended.stdout
    assert own.stdout.splitlines()[-1:] == ended.stdout.splitlines()[-1:]


ABOUT = """
    import json, os, signal, sys, threading, torch

    def typed(number: int): pass

    print(json.dumps({
        "words": sys.argv, "variables": dict(os.environ), "folder": os.getcwd(), "path": sys.path, "name": __name__,
        "file": __file__, "main": vars(sys.modules["__main__"]) is globals(), "names": sorted(globals()),
        "annotations": repr(typed.__annotations__), "module": typed.__module__,
        "session": os.getsid(0) == os.getpid(), "group": os.getpgrp() == os.getpid(),
        "open": sorted(os.listdir("/proc/self/fd")), "input": os.readlink("/proc/self/fd/0"),
        "blocked": [each for each in open("/proc/self/status").read().splitlines() if each.startswith("SigBlk")],
        "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "threads": threading.active_count(), "heavy": "lightning" in sys.modules, "ours": "penstock" in sys.modules,
        "torch_threads": torch.get_num_threads(), "tty": sys.stdout.isatty(), "flags": list(sys.flags),
        "lines": sys.stdout.line_buffering, "encoding": sys.stdout.encoding,
    }))
"""


def test_forked_program_gets_same_arguments_and_environment_as_fresh_interpreter(write, tmp_path):
    path, folder = write(ABOUT), tmp_path / "folder"
    folder.mkdir()
    variables = os.environ | {"ONLY": "this, é", "OMP_NUM_THREADS": "1"}
    del variables["AWS_CONFIG_FILE"]
    ended = run([path, "a b", "ü"], [variables], folder=folder)
    own = subprocess.run(
        [sys.executable, path, "a b", "ü"],
        capture_output=True,
        text=True,
        check=True,
        env=variables,
        cwd=folder,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )
    told, expected = json.loads(ended.stdout), json.loads(own.stdout)
    expected["variables"].pop("LC_CTYPE", None)  # where the locale is C an interpreter sets it for its children
    assert told == expected


def test_forked_program_lacks_modules_imported_only_by_other_programs(write):
    assert run([write("import torch.distributed.tensor")], [os.environ]).returncode == 0
    assert "AttributeError" in run([write("import torch; torch.distributed.tensor")], [os.environ]).stdout


def test_programs_that_are_forked_beside_one_another_draw_different_numbers(write, monkeypatch):
    monkeypatch.setitem(launch.HEAVY, "numpy.random", "numpy.random")  # as Lightning, say, brings it along
    path = write(
        "import random, numpy.random, torch\nprint(random.random(), numpy.random.random(), torch.rand(1).item())"
    )
    drawn = {word for _ in range(2) for word in run([path], [os.environ]).stdout.split()}
    assert len(drawn) == 5  # torch begins with the same seed in every process


HANGS = """
    import os, time

    def waits():
        if not os.fork():
            os.setsid()
            print(os.getpid(), flush=True)
        time.sleep(99)

    waits()
"""


def test_a_program_that_hangs_shows_where_and_leaves_nothing(write):
    with pytest.raises(subprocess.TimeoutExpired) as raised:
        run([write(HANGS)], [os.environ], limit_s=3)
    child, stacks = raised.value.output.split("\n", 1)
    assert stacks.count("in waits") == 2  # the child's too, though it has a session of its own
    assert not Path("/proc", child).exists()


RANKS = """
    import os, signal, sys, torch, torch.distributed as dist

    dist.init_process_group("gloo")
    both = torch.ones(1)
    dist.all_reduce(both)
    print(f"{dist.get_rank()} of {both.item():.0f} with {os.environ['LOCAL_RANK']}\\n", end="")
    sys.stdout.flush()
    if sys.argv[1] == str(dist.get_rank()):
        os.kill(os.getpid(), 9)
    if sys.argv[1]:
        signal.pause()
    dist.destroy_process_group()
"""


def test_ranks_meet(write):
    ended = ranks(3, write(RANKS), "")
    assert ended.returncode == 0, ended.stdout
    assert sorted(ended.stdout.splitlines()) == [f"{rank} of 3 with {rank}" for rank in range(3)]


def test_a_rank_that_fails_ends_the_others(write):
    assert ranks(2, write(RANKS), "1").returncode != 0


LASTS = """
    import sys, time

    with open(sys.argv[1], "w") as told:
        print("begun", file=told, flush=True)
        time.sleep(60)
        print("left", file=told)
"""


def test_forked_programs_die_when_the_test_process_is_killed(write, tmp_path):
    os.mkfifo(tmp_path / "told")
    script = "import os, sys; from tests.edges import launch; launch.run(sys.argv[1:], [os.environ])"
    command = [sys.executable, "-c", script, write(LASTS), tmp_path / "told"]
    with subprocess.Popen(command) as tests, open(tmp_path / "told") as told:
        assert told.readline() == "begun\n"
        tests.kill()
        assert told.read() == ""
