"""Threads wait for one another no longer than they say, and Ctrl-C leaves nothing behind that others would wait for."""

import ast
import sys
import threading
from importlib import import_module
from pathlib import Path
from time import monotonic

import penstock
from penstock.engine.waiting import LOOK_S, Wakeup
from tests.amounts import examples
from tests.children import in_child, python


class TestWakeup:
    def test_wakeup_set_several_times_wakes_only_once(self):
        wakeup = Wakeup()
        assert not wakeup.wait(0.0)
        for _ in range(3):
            wakeup.set()
        assert wakeup.wait(0.0)
        assert not wakeup.wait(0.0)

    def test_wakeup_set_wakes_a_waiting_thread(self):
        wakeup, woken = Wakeup(), Wakeup()

        def answer():
            for _ in range(1000):
                assert wakeup.wait(60)
                woken.set()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        for _ in range(1000):
            wakeup.set()
            assert woken.wait(60)
        thread.join(60)
        assert not thread.is_alive()

    def test_none_is_lost_where_several_threads_set_it(self):
        wakeup, items, taken, count = Wakeup(), [], 0, 4 * 5000

        def add():
            for _ in range(count // 4):
                items.append(None)
                wakeup.set()

        threads = [threading.Thread(target=add, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        while taken < count:
            taken = max(taken, len(items))
            assert taken == count or wakeup.wait(60), "a wake-up was lost"

    def test_however_short_a_time_is_a_wait_ends(self, seed):
        script = """
            import random, sys
            from penstock.engine.waiting import Wakeup

            chance = random.Random(int(sys.argv[1]))
            for _ in range(int(sys.argv[2])):
                assert not Wakeup().wait(chance.uniform(0, 5e-6))
            print("over")
        """
        ended = python(script, str(seed), str(examples(100_000)), limit_s=250)
        assert ended.stdout == "over\n", ended.stderr

    def test_wait_without_wakeup_lasts_at_least_its_limit(self):
        for limit_s in (0.05, LOOK_S + 0.05):
            began = monotonic()
            assert not Wakeup().wait(limit_s)
            assert limit_s <= monotonic() - began


def test_no_queue_written_in_c_bounds_a_wait():
    """In CPython 3.11 ``SimpleQueue.get(timeout=…)`` may wait for ever (design/0075); ``Wakeup`` does not."""
    allowed = {"engine/transport/work.py"}  # where it may: see there
    root = Path(penstock.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        text = path.read_text("utf-8")
        calls = ast.walk(ast.parse(text)) if "SimpleQueue" in text else ()
        gets = [call for call in calls if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "get"]
        if any(keyword.arg == "timeout" for call in gets for keyword in call.keywords):
            found.add(path.relative_to(root).as_posix())
    assert found == allowed


def test_interrupts_at_random_moments_leave_every_operation_that_follows_an_answer(seed):
    """Small operations take less than a millisecond: each moment comes in which a lock or a call could be lost."""
    script = """
        import random, signal, sys
        from penstock.options import ReadOptions
        from penstock.engine.buffer import Buffer
        from penstock.engine.read.reader import read_into, read_many
        from penstock.values import Span
        from tests.engine.fetch.store import serving

        chance, data = random.Random(int(sys.argv[1])), b"0123456789" * 10
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        interrupted = 0
        with serving({"key": data}, read=ReadOptions(split_bytes=25)) as (server, engine):
            span = Span("key", 0, 20, "e1")
            verbs = (
                lambda: engine.run(lambda: engine.driver.head("key")),
                lambda: read_many(engine, [span, span]),
                lambda: read_into(engine, Span("key", 0, 100, "e1"), Buffer.borrow(bytearray(100))),
            )
            for number in range(600):
                verb = verbs[number % len(verbs)]
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 2e-3))
                    for _ in range(20):
                        verb()
                except KeyboardInterrupt:
                    interrupted += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
                assert engine.run(lambda: engine.driver.get("key", "")) == data
        print(interrupted)
    """
    ended = python(script, str(seed), limit_s=60)
    assert ended.stdout, ended.stderr
    assert int(ended.stdout) > 400


def test_ctrl_c_ends_every_verb_within_a_second_where_a_store_never_answers():
    script = """
        import signal, socket
        from time import monotonic
        import torch
        import penstock as ps
        from penstock import CheckpointManager
        from penstock.source import open_source

        listener = socket.create_server(("127.0.0.1", 0), backlog=512)  # it connects, and says nothing
        store = ps.S3Options(endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}", anonymous=True)
        url, state = "s3://bucket/some/key", {"weight": torch.zeros(10)}
        known = ps.ObjectMeta("some/key", 64 << 20, "e1")
        source, _ = open_source(url, store)
        manager = CheckpointManager("s3://bucket/run", store=store)

        def write():
            with ps.open(url, "wb", store=store) as file:
                file.write(bytes(40 << 20))

        verbs = {
            "list": lambda: [*ps.list(url, store=store)],
            "stat": lambda: ps.stat(url, store=store),
            "open": lambda: ps.open(url, store=store),
            "read": lambda: source.open_read("some/key", known).read(100),
            "read many blocks": lambda: source.open_read("some/key", known).read(),
            "write": write,
            "save": lambda: ps.save(state, url, store=store),
            "load": lambda: ps.load(url, store=store),
            "save safetensors": lambda: ps.save_safetensors(state, url + ".safetensors", store=store),
            "load safetensors": lambda: ps.load_safetensors(url + ".safetensors", store=store),
            "delete": lambda: ps.delete([url, url + "2"], store=store),
            "copy": lambda: ps.copy(url, url + "2", store=store),
            "scan": lambda: ps.Catalog.scan("s3://bucket/some/", store=store),
            "open a catalog": lambda: ps.Catalog.open("s3://bucket/some.csv", store=store),
            "dataset": lambda: ps.MapDataset.from_prefix("s3://bucket/some/", store=store),
            "latest step": lambda: manager.latest(),
            "save a step": lambda: manager.save(1, state),
            "restore a step": lambda: manager.restore(),
            "clean": lambda: manager.clean(),
        }
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        for name, verb in verbs.items():
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            began = monotonic()
            try:
                verb()
            except KeyboardInterrupt:
                if monotonic() - began > 2:
                    print(name, f"took {monotonic() - began:.1f} s")
            except BaseException as error:
                signal.setitimer(signal.ITIMER_REAL, 0)
                print(name, "raised", repr(error))
            else:
                print(name, "returned")
            signal.setitimer(signal.ITIMER_REAL, 0)
        print("over", monotonic())
    """
    ended = python(script)
    assert ended.stdout.startswith("over"), ended.stdout + ended.stderr


def test_fork_waits_for_an_import_running_in_another_thread(tmp_path, monkeypatch):
    begun = tmp_path / "begun"
    (tmp_path / "imported_slowly.py").write_text(
        f"import time\nopen({str(begun)!r}, 'w').close()\ntime.sleep(1)\n"  # what it takes, nothing that is waited for
    )
    monkeypatch.setattr(penstock, "__path__", [*penstock.__path__, str(tmp_path)])
    name = "penstock.imported_slowly"
    thread = threading.Thread(target=import_module, args=(name,))
    thread.start()
    while not begun.exists():
        assert thread.is_alive()
    in_child(lambda: import_module(name), limit_s=20)
    thread.join()
    del sys.modules[name]


def test_a_fork_and_an_import_that_asks_for_a_logger_do_not_wait_for_each_other(tmp_path):
    (tmp_path / "imported_slowly.py").write_text(
        # The time that the import takes; nothing waits for it.
        f"import time\nopen({str(tmp_path / 'begun')!r}, 'w').close()\ntime.sleep(1)\n"
        "import logging\nlogging.getLogger('penstock.imported_slowly')\n"
    )
    script = f"""
        import os, threading
        from importlib import import_module
        import penstock
        import penstock.engine.waiting
        import logging
        penstock.__path__.append({str(tmp_path)!r})
        thread = threading.Thread(target=import_module, args=("penstock.imported_slowly",), daemon=True)
        thread.start()
        while not os.path.exists({str(tmp_path / "begun")!r}):
            assert thread.is_alive()
        pid = os.fork()
        if not pid:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        thread.join()
    """
    ended = python(script, limit_s=30)
    assert (ended.returncode, ended.stderr) == (0, "")
