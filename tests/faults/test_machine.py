"""Random operations among random faults against a dictionary: a write is all or nothing, a read is right or raises."""

from __future__ import annotations

from contextlib import ExitStack

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.errors import NotFound, PenstockError
from penstock.source import open_source
from penstock.stores.s3.options import S3Options
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from penstock.values import Span
from tests.faults.cases import PART_BYTES, small_limits, store

KEYS = st.sampled_from(["a", "a/b", "b c+%é"])
# Bytes that differ from place to place, so that a shifted read shows, and from write to write.
DATA = st.builds(
    lambda size, salt: (
        bytes((salt * 31 + n * n) % 251 for n in range(997)) * (size // 997) + bytes([salt]) * (size % 997)
    ),
    st.integers(0, 4 * PART_BYTES),
    st.integers(0, 250),
)
# Left out: those that wait, and those that nobody can tell (docs/faults.md: Unseen; a late duplicate of an answer).
QUICK = sorted(set(FAULTS) - {"stall", "stall-body", "slow", "drip", "503-after", "corrupt", "shorter", "duplicate"})
MOVED = {name for name in QUICK if FAULTS[name].region}


class Machine(RuleBasedStateMachine):
    """One bucket, the dictionary it should equal, and a server that has faults up its sleeve."""

    @initialize()
    def begin(self):
        self.ends = ExitStack()
        self.ends.enter_context(small_limits())
        self.server = self.ends.enter_context(FaultServer.within(Settings(least_part_bytes=PART_BYTES)))
        self.server.make("bucket")
        keys = self.server.settings
        short = store(self.server, attempts=2)
        options = {name: getattr(short, name) for name in ("endpoint", "region", "transport", "retry", "write")}
        explicit = S3Options(**options, access_key=keys.access_key, secret_key=keys.secret_key)
        self.source, _ = open_source("s3://bucket/", explicit)
        self.model = {}

    def teardown(self):
        if hasattr(self, "ends"):
            self.ends.close()

    @rule(fault=st.sampled_from(sorted(set(QUICK) - MOVED)), times=st.integers(1, 3), nth=st.integers(1, 3))
    def plant(self, fault, times, nth):
        self.server.fail(FAULTS[fault], when=Match(times=times, nth=nth))

    @rule(verb=st.sampled_from(["put", "part", "complete"]))
    def damage_an_upload(self, verb):
        self.server.fail(FAULTS["corrupt"], when=Match(verb=verb))

    @rule(key=KEYS, data=DATA)
    def write(self, key, data):
        def write():
            with self.source.open_write(key) as file:
                file.write(data)

        self.change(key, data, write)

    @rule(key=KEYS, data=DATA)
    def give_up_writing(self, key, data):
        def give_up():
            with self.source.open_write(key) as file:
                file.write(data)
                raise NotFound("the producer fell over")

        self.change(key, self.model.get(key), give_up, raises=True)

    @rule(key=KEYS, data=DATA)
    def put(self, key, data):
        self.change(key, data, lambda: self.source.put(key, data))

    @rule(key=KEYS)
    def delete(self, key):
        self.change(key, None, lambda: self.source.delete([key]))

    @rule(key=KEYS, to=KEYS)
    def copy(self, key, to):
        new = self.model.get(key, self.model.get(to))
        self.change(to, new, lambda: self.source.copy(key, to), raises=key not in self.model)

    @rule(key=KEYS)
    def read_whole(self, key):
        self.look(lambda: self.source.open_read(key).read(), self.model.get(key))

    @rule(key=KEYS)
    def read_unknown(self, key):
        self.look(lambda: self.source.read(Span(key)), self.model.get(key))

    @rule(key=KEYS, ends=st.tuples(st.integers(0, 4 * PART_BYTES), st.integers(0, 4 * PART_BYTES)))
    def read_range(self, key, ends):
        data = self.model.get(key)
        start, stop = sorted(min(end, len(data or b"")) for end in ends)
        if start == stop:
            return
        self.look(lambda: self.source.read(Span(key, start, stop, self.source.head(key).etag)), data[start:stop])

    @rule()
    def look_around(self):
        found = [(key, len(self.model[key])) for key in sorted(self.model, key=str.encode)]
        self.look(lambda: [(e.key, e.size) for page in self.source.pages("") for e in page.entries], found)

    def change(self, key, new, act, *, raises=False):
        """Do something that should make ``key`` hold ``new`` (None: nothing); if it fails, it may hold what it did."""
        old, met = self.model.get(key), self.met()
        try:
            act()
            assert not raises
            allowed = [new]
        except PenstockError:
            assert raises or self.met() > met, "it failed without a fault"
            allowed = [old, new]
        found = self.server.objects("bucket").get(key)
        assert found in allowed
        self.model.pop(key, None)
        if found is not None:
            self.model[key] = found

    def look(self, act, expected):
        met = self.met()
        try:
            assert act() == expected
        except NotFound:
            assert expected is None or self.met() > met
        except PenstockError:
            assert self.met() > met, "it failed without a fault"

    def met(self):
        return sum(bool(seen.fault) for seen in self.server.seen())

    @invariant()
    def nothing_else_changes(self):
        if hasattr(self, "server"):
            assert self.server.objects("bucket") == self.model


Machine.TestCase.settings = settings(stateful_step_count=50)
TestMachine = Machine.TestCase
