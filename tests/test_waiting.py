"""At whatever moment Ctrl-C comes, a wait for the transport leaves nothing behind that others would wait for."""

from tests.children import python


def test_interrupts_at_random_moments_leave_every_operation_that_follows_an_answer(seed):
    """Small operations take less than a millisecond: each moment comes in which a lock or a call could be lost."""
    script = """
        import random, signal, sys
        from penstock.options import ReadOptions
        from penstock.buffer import Buffer
        from penstock.fetch.reading.batch import read_into, read_many
        from penstock.values import Span
        from tests.fetch.store import serving

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
