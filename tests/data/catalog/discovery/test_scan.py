"""A scan finds every key once, in order, with few requests more than a plain listing, however the timing falls."""

import bisect
import itertools
import random
import signal
import sys
import threading
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.data.catalog.catalog import make_catalog
from penstock.data.catalog.discovery import scan as scanning
from penstock.data.catalog.discovery.scan import first_names
from penstock.engine.contracts.driver import Abilities
from penstock.engine.listing.listing import Entries
from penstock.engine.listing.select import Leftovers
from penstock.errors import ConfigError, Damaged, Throttled
from penstock.stores.http.listing import columns
from penstock.testing.faults import FaultServer
from penstock.values import ObjectMeta, Page
from tests.data.catalog.large import peak_of
from tests.refusals import refused

# Few letters and many slashes make the shapes that matter: nested, empty and repeated directories, keys beside them.
_keys = st.sets(st.text("ab/é🐶", min_size=1, max_size=7), max_size=60)


_spread = st.sets(st.text("09amz🐶", min_size=1, max_size=12), min_size=1, max_size=40)


def scan(source, prefix, **options):
    return make_catalog(source.root, *scanning.listed(source, prefix, scanning.ScanOptions(**options)))


def _found(catalog):
    return [entry.key for entry in catalog]


class _Rounds:
    """A bucket that answers all requests in flight together, as one does whose answers take equally long.

    Attributes:
        sent: How many requests each round answered.
    """

    root, seeks = "s3://bucket/", True

    def __init__(self, bucket):
        self.sent = []
        self.jumps = bucket.abilities.jumps
        self._bucket, self._flying = bucket, {}

    def pager(self, **_):
        return self

    def start(self, prefix, **asked):
        request = object()
        self._flying[request] = prefix, asked
        return request

    def take(self):
        flying, self._flying = self._flying, {}
        self.sent.append(len(flying))
        return [(request, self._bucket.page(prefix, **asked)) for request, (prefix, asked) in flying.items()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


_SKIPPED = {
    "one key": lambda left, _: left[1:],
    "the rest": lambda _left, _after: [],
    "a directory": lambda left, after: [key for key in left if not key.startswith(after.partition("/")[0] + "/")],
    "a page": lambda left, _: left[4:],
    "all up to a round number": lambda left, _: left[-(len(left) // 3 * 3) :],
}


def _skipping(bucket_of, skipped):
    """Return buckets that leave keys out where a listing begins after a key: ``left_out`` has them."""

    class Skipping(bucket_of):
        left_out: ClassVar = set()

        def page(self, prefix, *, token="", start_after="", delimiter=""):
            if not start_after or token or delimiter:
                return super().page(prefix, token=token, start_after=start_after, delimiter=delimiter)
            left = self.keys[bisect.bisect_right(self.keys, self._order(start_after), key=self._order) :]
            kept = _SKIPPED[skipped](left, start_after)
            self.left_out |= {*left} - {*kept}
            if not kept:
                return Page((), (), "")
            before = self.keys.index(kept[0])
            after = self.keys[before - 1] if before else ""
            return super().page(prefix, token=after, start_after=start_after)

    return Skipping


class TestEverything:
    @given(
        _keys,
        st.sampled_from(["", "a", "a/", "a/b", "/", "nothing"]),
        st.integers(1, 7),
        st.sampled_from([1, 2, 16]),
        st.fixed_dictionaries({"rolls": st.booleans(), "jumps": st.booleans()}),
    )
    def test_every_key_once_in_utf_8_order(self, bucket_of, keys, prefix, page_size, workers, manner):
        bucket = bucket_of(keys, page_size, **manner)
        catalog = scan(bucket, prefix, workers=workers)
        chosen = [key for key in bucket.keys if key.startswith(prefix)]
        assert _found(catalog) == chosen
        assert catalog.sizes.tolist() == [len(key) for key in chosen]
        assert [entry.etag for entry in catalog] == [bucket.etag(key) for key in chosen]

    @given(_keys, st.integers(1, 4), st.integers(0, 1 << 30).map(random.Random))
    def test_no_advice_of_the_server_loses_or_repeats_a_key(self, bucket_of, keys, page_size, chance):
        class Liar(bucket_of):
            def _answer(self, prefix, after, delimiter):
                if not delimiter:
                    return super()._answer(prefix, after, "")
                lies = [chance.choice("ab/é") * chance.randrange(4) for _ in range(5)]
                return Page((), tuple(lies), chance.choice(["", "again"]))

        bucket = Liar(keys, page_size)
        assert _found(scan(bucket, "")) == bucket.keys

    @given(_spread, st.integers(1, 4), st.sampled_from([2, 5, 16]), st.integers(0, 1 << 30).map(random.Random))
    def test_no_spread_of_keys_loses_or_repeats_one_or_costs_much_more(
        self, bucket_of, keys, page_size, workers, chance
    ):
        """Keys that are dense here and sparse there: guesses are wrong, and their number is bounded."""
        keys = {key + "".join(chance.choices("01z", k=chance.randrange(5))) for key in keys for _ in range(9)}
        bucket = bucket_of(keys, page_size, jumps=True)
        assert _found(scan(bucket, "", workers=workers)) == bucket.keys
        asked = sum(bool(request["delimiter"]) for request in bucket.requests)
        assert len(bucket.requests) - asked <= 3 * bucket.plain_pages() + workers

    def test_keys_that_come_and_go_are_there_or_not_and_never_twice(self, bucket_of, seed):
        chance = random.Random(seed)
        stable = {f"{i % 9}/{i:04}" for i in range(0, 900, 2)}
        flux = [f"{i % 9}/{i:04}" for i in range(1, 900, 2)]

        def stir(**_):
            keys = stable | set(chance.sample(flux, 200))
            bucket.keys = sorted(keys)

        bucket = bucket_of(stable, 10, before=stir)
        found = _found(scan(bucket, "", workers=8))
        assert found == sorted(set(found))
        assert stable <= set(found) <= stable | set(flux)

    def test_a_tree_of_many_pages(self, bucket_of):
        keys = [f"train/{i // 100:04}/{i:06}.jpg" for i in range(20_000)]
        catalog = scan(bucket_of(keys), "train/")
        assert _found(catalog) == keys


class TestWhatItIsRelativeTo:
    def test_the_base_is_the_prefix_up_to_its_last_slash(self, bucket_of):
        bucket = bucket_of(["train/a/1", "train/ab/2", "train/b/3"])
        catalog = scan(bucket, "train/a")
        assert (catalog.root, catalog.base, _found(catalog)) == ("s3://bucket/", "train/", ["train/a/1", "train/ab/2"])
        assert scan(bucket, "tra").base == ""
        assert scan(bucket, "train/").base == "train/"

    def test_globs_are_below_it_and_markers_are_left_out(self, bucket_of):
        class Marked(bucket_of):
            def _answer(self, *asked):
                page = super()._answer(*asked)
                entries = (ObjectMeta(each.key, 0 if each.key.endswith("/") else 1) for each in page.entries)
                return Page(tuple(entries), page.prefixes, page.token)

        bucket = Marked(["t/", "t/a/", "t/a/1.jpg", "t/a/1.txt", "t/b/2.jpg", "t/3.jpg"])
        assert _found(scan(bucket, "t/")) == ["t/3.jpg", "t/a/1.jpg", "t/a/1.txt", "t/b/2.jpg"]
        assert _found(scan(bucket, "t/", include="*/*.jpg", exclude=["b/**"])) == ["t/a/1.jpg"]
        assert len(scan(bucket, "t/", include="t/**")) == 0

    def test_non_utf8_keys_are_listed_by_scan(self, bucket_of):
        names = [b"a\xff/%d" % i for i in range(9)] + [b"\xc3\xa9/%d" % i for i in range(9)]
        bucket = bucket_of([name.decode("utf-8", "surrogateescape") for name in names], 2)
        assert _found(scan(bucket, "")) == bucket.keys


class TestCost:
    @pytest.mark.parametrize("count", [0, 1, 999, 1000])
    def test_single_page_listing_sends_a_single_request(self, bucket_of, count):
        bucket = bucket_of(f"{i % 7}/{i}" for i in range(count))
        assert len(scan(bucket, "")) == count
        assert bucket.requests == [{"prefix": "", "token": "", "start_after": "", "delimiter": ""}]

    def test_a_flat_prefix_costs_one_request_more(self, bucket_of):
        bucket = bucket_of(f"flat/{i:05}" for i in range(5500))
        assert len(scan(bucket, "flat/")) == 5500
        assert len(bucket.requests) == 6 + 1
        assert sum(bool(request["delimiter"]) for request in bucket.requests) == 1

    def test_single_worker_scan_sends_plain_page_requests_in_sequence(self, bucket_of):
        bucket = bucket_of(f"{i % 5}/{i:05}" for i in range(5500))
        assert len(scan(bucket, "", workers=1)) == 5500
        assert len(bucket.requests) == bucket.plain_pages() == 6
        assert bucket.most_at_once == 1

    def test_a_thousand_directories_of_a_few_keys_cost_no_request_each(self, bucket_of):
        bucket = bucket_of(f"{i // 3:04}/{i % 3}" for i in range(3000))
        assert len(scan(bucket, "")) == 3000
        assert len(bucket.requests) <= 3 + 1 + 2

    @pytest.mark.parametrize(
        "name",
        [
            "{0:05}",
            "{1}/{0:05}",
            "{2:03}/{0:05}",
            "{0:05}/x",
            "a/b/c/{1}/{0:05}",
            "{1}/{2:03}/{0:05}",
            "{2:03}/{0:05}/x/y/z",
        ],
        ids=["flat", "ten", "hundreds", "one each", "deep", "two levels", "one each, deep"],
    )
    def test_extra_requests_are_bounded(self, bucket_of, name):
        """At most an advice beside each full page, and a page more for each part that was handed over."""
        bucket = bucket_of((name.format(i, i // 1000, i // 40) for i in range(10_000)), 100)
        assert len(scan(bucket, "")) == 10_000
        advice = sum(bool(request["delimiter"]) for request in bucket.requests)
        parts = sum(bool(request["start_after"]) and not request["delimiter"] for request in bucket.requests)
        assert len(bucket.requests) <= bucket.plain_pages() + advice + parts
        assert advice <= bucket.plain_pages()
        assert parts <= bucket.plain_pages()

    def test_directories_are_listed_side_by_side(self, bucket_of):
        """The three requests meet, so they are in flight together; the plain listing waits until they have."""
        three, met = threading.Barrier(3), threading.Event()

        def meet(token, start_after, delimiter, **_):
            if token:
                assert met.wait(60)
            elif start_after and not delimiter and not met.is_set():
                three.wait(60)
                met.set()

        bucket = bucket_of((f"{i // 1000}/{i:05}" for i in range(5000)), 1000, before=meet)
        assert len(scan(bucket, "", workers=4)) == 5000
        assert met.is_set()

    def test_a_short_flat_prefix_costs_one_request_more_wherever_it_lies(self, bucket_of):
        bucket = bucket_of((f"flat/{i:05}" for i in range(3000)), jumps=True)
        assert len(scan(bucket, "flat/")) == 3000
        assert len(bucket.requests) == 3 + 1

    @pytest.mark.parametrize("name", ["{0:05}", "x{0:020}.jpg", "{1:032x}", "{0}", "{0:05}/x"])
    def test_keys_of_one_folder_are_listed_side_by_side(self, bucket_of, name, seed):
        chance = random.Random(seed)
        bucket = bucket_of((name.format(i, chance.getrandbits(128)) for i in range(20_000)), 100, jumps=True)
        rounds = _Rounds(bucket)
        assert len(scan(rounds, "", workers=8)) == 20_000
        assert max(rounds.sent) == 8
        assert len(rounds.sent) <= bucket.plain_pages() / 4, "as many rounds of requests, one after another"
        assert sum(rounds.sent) <= 1.5 * bucket.plain_pages()

    @pytest.mark.parametrize("jumps", [True, False])
    @pytest.mark.parametrize("name", ["{0:05}", "{1:032x}", "{0}", "{2}/{0:05}", "{0:05}/x", "{2}/{3}/{0:05}"])
    def test_ten_pages_never_take_more_rounds_than_a_plain_listing(self, bucket_of, name, jumps, seed):
        chance = random.Random(seed)
        keys = (name.format(i, chance.getrandbits(128), i // 2000, i // 100) for i in range(10_000))
        rounds = _Rounds(bucket_of(keys, jumps=jumps))
        assert len(scan(rounds, "")) == 10_000
        assert len(rounds.sent) <= 10

    def test_never_more_requests_at_once_than_workers(self, bucket_of):
        bucket = bucket_of((f"{i // 50:03}/{i:05}" for i in range(10_000)), 20)
        scan(bucket, "", workers=3)
        assert bucket.most_at_once <= 3

    def test_progress_counts_selected_keys_on_the_calling_thread(self, bucket_of):
        seen = []
        bucket = bucket_of((f"{i % 5}/{i:04}" for i in range(1000)), 50)
        scan(bucket, "", include="*/*0", progress=lambda count: seen.append((count, threading.current_thread())))
        counts = [count for count, _ in seen]
        assert counts == sorted(counts)
        assert counts[-1] == 100
        assert {thread for _, thread in seen} == {threading.current_thread()}


class TestTrouble:
    def test_an_error_of_any_request_reaches_the_caller(self, bucket_of):
        def refuse(start_after, **_):
            if start_after:
                raise Throttled("slow down")

        bucket = bucket_of((f"{i % 5}/{i:04}" for i in range(1000)), 50, before=refuse)
        with pytest.raises(Throttled):
            scan(bucket, "")

    @pytest.mark.parametrize("trouble", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
    def test_an_interrupt_ends_it_after_the_requests_in_flight(self, bucket_of, trouble):
        def interrupt(_):
            raise trouble

        bucket = bucket_of((f"{i % 5}/{i:04}" for i in range(10_000)), 10)
        with pytest.raises(trouble):
            scan(bucket, "", progress=interrupt)
        assert len(bucket.requests) == 1

    def test_ctrl_c_ends_it_in_the_middle(self, bucket_of):
        count = itertools.count()

        def interrupt(**_):
            if next(count) == 50:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        bucket = bucket_of((f"{i % 5}/{i:04}" for i in range(10_000)), 10, before=interrupt)
        with pytest.raises(KeyboardInterrupt):
            scan(bucket, "")
        assert len(bucket.requests) < bucket.plain_pages() / 2

    @pytest.mark.parametrize("loop", ["same page", "same token", "empty pages"])
    def test_a_server_that_goes_in_circles_is_an_error_and_no_endless_loop(self, bucket_of, loop):
        """Trap 13."""

        class Circle(bucket_of):
            def _answer(self, prefix, after, delimiter):
                page = super()._answer(prefix, "" if loop == "same page" else after, delimiter)
                entries = () if loop == "empty pages" else page.entries
                return Page(entries, page.prefixes, f"token {len(self.requests)}" if loop == "empty pages" else "token")

        error = refused(Damaged, "does not advance", scan, Circle([f"p/{i}" for i in range(99)], 10), "p/")
        assert error.url == "s3://bucket/p/"

    @pytest.mark.parametrize("name", ["{1}/{0:04}", "{0:04}"])
    def test_a_server_that_ignores_start_after_is_listed_plainly(self, bucket_of, name):
        class Old(bucket_of):
            def page(self, prefix, *, token="", start_after="", delimiter=""):
                nonlocal ignored
                ignored += bool(start_after)
                return super().page(prefix, token=token, delimiter=delimiter)

        ignored = 0
        keys = [name.format(i, i // 100) for i in range(1000)]
        bucket = Old(keys, 50, jumps=True)
        assert _found(scan(bucket, "")) == keys
        assert ignored, "it was never asked to begin somewhere"
        del bucket.requests[:]
        assert _found(scan(bucket, "", workers=1)) == keys
        assert len(bucket.requests) == bucket.plain_pages()

    @given(
        _spread,
        st.integers(1, 4),
        st.sampled_from([2, 5, 16]),
        st.sampled_from([*_SKIPPED]),
        st.integers(0, 1 << 30).map(random.Random),
    )
    def test_a_server_that_leaves_keys_out_where_a_part_begins_loses_none(
        self, bucket_of, keys, page_size, workers, skipped, chance
    ):
        """Whatever it leaves out, and whether parts begin at directories or at guessed bounds."""
        keys = {"/".join([key, *chance.choices("01z", k=chance.randrange(5))]) for key in keys for _ in range(9)}
        bucket = _skipping(bucket_of, skipped)(keys, page_size, jumps=chance.random() < 0.7)
        assert _found(scan(bucket, "", workers=workers)) == bucket.keys

    @pytest.mark.parametrize("skipped", [*_SKIPPED])
    def test_keys_that_are_left_out_are_noticed_and_not_just_never_asked_for(self, bucket_of, skipped):
        bucket = _skipping(bucket_of, skipped)([f"{at // 100}/{at:04}" for at in range(1000)], 50, jumps=True)
        assert _found(scan(bucket, "")) == bucket.keys
        assert bucket.left_out
        assert sum(not (asked["token"] or asked["start_after"] or asked["delimiter"]) for asked in bucket.requests) >= 2

    def test_keys_deleted_during_a_scan_do_not_trigger_a_plain_relisting(self, bucket_of):
        keys = [f"{at // 100:02}/{at:04}" for at in range(2000)]

        def delete(token, start_after, delimiter, **_):
            if start_after and not (token or delimiter) and bucket.keys[0] == keys[0]:
                at = bisect.bisect_right(bucket.keys, start_after)
                gone.extend(bucket.keys[at : at + 1])
                del bucket.keys[at : at + 1]

        gone: list[str] = []
        bucket = bucket_of(keys, 50, jumps=True, before=delete)
        found = _found(scan(bucket, "", workers=8))
        assert {*keys} - {*gone} <= {*found} <= {*keys}
        assert gone
        first = {"prefix": "", "token": "", "start_after": "", "delimiter": ""}
        assert bucket.requests.count(first) == 1, "it was listed plainly"

    def test_a_store_that_begins_at_the_first_key_only_is_listed_plainly(self, bucket_of):
        bucket = bucket_of([f"{number % 50:02}/{number:05}" for number in range(5_000)], 100)
        bucket.abilities = Abilities(seeks=False)
        assert len(scan(bucket, "", workers=16)) == 5_000
        assert bucket.most_at_once == 1
        assert not any(asked["start_after"] or asked["delimiter"] for asked in bucket.requests)

    def test_zero_workers_raises_config_error(self, bucket_of):
        refused(ConfigError, "workers", scan, bucket_of([]), "", workers=0)


# -- splits


@pytest.mark.parametrize(
    ("files", "one"),
    [
        (("data/test-00000-of-00001.jsonl", "data/train-00000-of-00001.jsonl"), "data/test*"),
        (("test/a.jsonl", "train/a.jsonl"), "test/"),
        (("x/c4-train.0.jsonl", "x/c4-validation.0.jsonl"), "x/c4-train*"),
    ],
)
def test_splits_of_shards_are_named(tmp_path, caplog, files, one):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    assert len(ps.MapDataset.from_shards(f"{tmp_path}/")) == 2
    (record,) = caplog.records
    assert "several splits are read as one" in record.getMessage()
    advice = record.getMessage().rpartition(" ")[2]
    assert advice.endswith(one)
    caplog.clear()
    assert len(ps.MapDataset.from_shards(advice)) == 1
    assert not caplog.records


def test_splits_of_objects_are_named(tmp_path, caplog):
    for name in ("images/test/cat/a.png", "images/train/cat/a.png", "images/train/dog/b.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    ps.Catalog.scan(f"{tmp_path}/", labels="folder")
    assert "test (1), train (1); for one of them pass" in caplog.text
    caplog.clear()
    ps.Catalog.scan(f"{tmp_path}/images/train/", labels="folder")
    assert not caplog.records


def test_names_that_show_splits_are_found_in_few_steps():
    class Counted(list):
        asked = 0

        def __getitem__(self, at):
            Counted.asked += 1
            return super().__getitem__(at)

    keys = [f"b/{name}{at:06}".encode() for name in ("a/", "test-", "train-", "z/y/") for at in range(10_000)]
    assert first_names(Counted(keys), "b/") == ["a/", "test-000000", "train-000000", "z/"]
    assert Counted.asked < 200


# -- The cost of an object does not grow with their number --


class _Served:
    """A bucket of made-up keys, whose pages are read as a driver reads them; ``made`` counts the objects listed."""

    root, seeks, jumps = "s3://bucket/", True, False
    _ENTRY = "<Contents><Key>{0:05}/{1:09}.jpg</Key><ETag>&quot;{2:032x}&quot;</ETag><Size>{1}</Size></Contents>"

    def __init__(self, count):
        self.count, self._flying = count, []

    def url(self, key):
        return self.root + key

    def pager(self, **_):
        return self

    def start(self, _prefix, *, token="", delimiter="", **_asked):
        self._flying.append((object(), int(token or 0), delimiter))
        return self._flying[-1][0]

    def take(self):
        flying, self._flying = self._flying, []
        return [(request, Page((), ()) if delimiter else self._page(start)) for request, start, delimiter in flying]

    def _page(self, start):
        stop = min(start + 1000, self.count)
        rows = "".join(self._ENTRY.format(at // 1000, at, hash((at, 1)) % (1 << 128)) for at in range(start, stop))
        found = columns(f"<ListBucketResult>{rows}</ListBucketResult>".encode(), "ETag")
        return Page(Entries(None, None, found.packed), (), str(stop) if stop < self.count else "")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def _calls(count):
    """Return how often Python or C code of a scan was called, without the making of the pages."""
    served, found = _Served(count), [0]
    page = served._page

    def count_call(_frame, event, _what):
        found[0] += event.endswith("call")

    def quietly(start):
        sys.setprofile(None)
        made = page(start)
        sys.setprofile(count_call)
        return made

    served._page = quietly
    sys.setprofile(count_call)
    try:
        catalog = scan(served, "", workers=1, leftovers=Leftovers())
    finally:
        sys.setprofile(None)
    assert len(catalog) == count
    return found[0] / count


def test_a_scan_makes_one_call_an_object_for_any_number_of_objects():
    few, more, many = map(_calls, (1_000, 10_000, 100_000))
    assert many <= more <= few
    assert many < 1


def test_a_scan_holds_less_than_40_bytes_an_object_of_the_heap_at_its_peak():
    """Beside the versions, of 16 bytes, which are outside the heap."""
    scan(_Served(1000), "", workers=1)
    few, many = (peak_of(lambda count=count: scan(_Served(count), "", workers=1))[1] for count in (150_000, 450_000))
    assert many - few < 40 * 300_000


# -- many keys


def test_many_keys_that_each_process_lists_name_a_saved_catalog(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(scanning, "_MANY_KEYS", 3)
    with FaultServer.within() as server:
        for number in range(4):
            server.put("bucket", f"a/{number}.jsonl", b"{}\n")
        for listing in (ps.MapDataset.from_prefix, ps.MapDataset.from_shards, ps.Catalog.scan):
            listing("s3://bucket/a/", store=server.store)
            (record,) = caplog.records
            assert record.getMessage().startswith("listed 4 keys below s3://bucket/a/, as each process and each run")
            assert "Catalog.save" in record.getMessage()
            caplog.clear()
        saved = "s3://bucket/saved"
        monkeypatch.setattr(scanning, "_MANY_KEYS", 4)
        ps.Catalog.scan("s3://bucket/a/", store=server.store).save(saved, store=server.store)
        monkeypatch.setattr(scanning, "_MANY_KEYS", 3)
        assert len(ps.MapDataset.from_catalog(saved, store=server.store)) == 4
        for name in "abcd":
            (tmp_path / "local").mkdir(exist_ok=True)
            (tmp_path / "local" / name).write_text("")
        ps.Catalog.scan(f"{tmp_path}/local/")
    assert not caplog.records


def test_many_keys_that_ranks_share_name_no_saved_catalog(monkeypatch, caplog):
    monkeypatch.setattr(scanning, "_MANY_KEYS", 3)
    monkeypatch.setattr(scanning, "torch_store", object)
    with FaultServer.within() as server:
        for number in range(4):
            server.put("bucket", f"a/{number}", b"")
        ps.Catalog.scan("s3://bucket/a/", store=server.store)
    assert not caplog.records
