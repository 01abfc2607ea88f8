"""A repository's files are read as they were listed: by one listing, from the CDN, without the token, verified."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from safetensors.torch import save
from torch import arange, equal

import penstock as ps
from penstock.engine.contracts.exchange import Exchange
from penstock.engine.read import hedging
from penstock.engine.transport.work import Threads
from penstock.errors import (
    Changed,
    ChecksumMismatch,
    ConfigError,
    Damaged,
    Forbidden,
    NotFound,
    Throttled,
    Unauthenticated,
    Unsupported,
    Unusable,
)
from penstock.source import open_source
from penstock.stores.direct import direct, reading
from penstock.stores.huggingface.driver import HubDriver, _lifetime_s
from penstock.stores.profiles.store import scope_driver
from penstock.testing.drivers import KEYS, DriverContract
from penstock.testing.servers import Scripted, reply
from penstock.values import Span
from tests.servers.hub import Hub, git_oid, version_of

TOKEN = "hf_TokenOfTheTests"
BIG = bytes(range(256)) * 12_000
FILES = {
    "README.md": b"# Data",
    "data/train-0.bin": BIG,
    "data/train-1.bin": BIG[::-1],
    "data/ünï cöde/100%20 +?#&.txt": b"odd" * 900,
    "empty": b"",
}


@pytest.fixture
def serve(monkeypatch, tmp_path):
    """Return a function that starts a hub for a test, which `hf://` finds."""
    hubs = []

    def begin(files=FILES, **settings):
        hub = Hub(dict(files), **settings).__enter__()
        hubs.append(hub)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        return hub

    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    for name in ("HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield begin
    for hub in hubs:
        assert not hub.leaks, "the CDN got the token"
        hub.__exit__()


class Followed:
    """Driver whose redirects are followed: the contract sends each exchange once, without the engine's retries."""

    def __init__(self, source):
        self._fetcher = source._fetcher()
        self._driver = self._fetcher.driver

    def __getattr__(self, name):
        found = getattr(self._driver, name)
        return partial(self._carry, found) if name in ("head", "read", "get") else found

    def list(self, prefix, **options):
        """Skip steps without keys, as `Source.page` does."""

        def run():
            page = self._fetcher.run(partial(self._driver.list, prefix, **options))
            while page.advanced and page.token and not (page.entries or page.prefixes):
                page = self._fetcher.run(partial(self._driver.list, prefix, **options | {"token": page.token}))
            return page

        return direct(run)

    def _carry(self, verb, *args, **options):
        versions = []

        def make(*given):
            exchange = verb(*given, **options)

            def parse(response):
                got = exchange.parse(response)
                versions[:] = [response.version]
                return got

            return Exchange(exchange.request, parse)

        make.__name__ = verb.__name__
        return reading(lambda: (self._fetcher.run(partial(make, *args)), versions[0]))()


class Committer:
    """Writer of the contract: each object is a commit, and the driver is as if it had been opened after it."""

    abilities = HubDriver.abilities
    prepare = staticmethod(lambda: None)
    url = staticmethod(str)

    def __init__(self, hub, driver):
        self._hub, self._driver = hub, driver

    def put(self, key, payload, attributes):
        del attributes
        return direct(partial(self._commit, key, bytes(payload.data)))

    def _commit(self, key, data):
        self._hub.put(key, data)
        self._driver._commit, self._driver._addresses = "", {}
        return version_of(data)


class TestHub(DriverContract):
    keys = tuple(key for key in KEYS if all(part not in ("", ".", "..") for part in key.split("/")))
    page_keys = sys.maxsize
    keeps_metadata = False

    @pytest.fixture
    def hub(self, serve):
        return serve({})

    @pytest.fixture
    def source(self, hub):
        with open_source(hub.root)[0] as source:
            yield source

    @pytest.fixture
    def store(self, source):
        return Followed(source), Threads()

    @pytest.fixture
    def writer(self, hub, source):
        return Committer(hub, source._fetcher().driver), Threads()


@pytest.mark.parametrize("kind", ["datasets", "models", "spaces"])
def test_all_files_are_listed_by_one_walk_and_read_with_their_names_as_they_are(serve, kind):
    hub = serve(kind=kind, page=2, token=TOKEN)
    options = ps.HFOptions(token=TOKEN)
    found = list(ps.list(hub.root, store=options))
    assert [each.key for each in found] == sorted(FILES, key=str.encode)
    assert [each.size for each in found] == [len(FILES[each.key]) for each in found]
    assert hub.asked["api"] == 1 + 4, "the commit, and the pages of 5 files and 2 folders"
    assert all(ps.open(each.url, store=options).read() == FILES[each.key] for each in found)
    assert hub.asked["cdn"] == 3


def test_folders_are_common_prefixes(serve):
    hub = serve()
    page = open_source(hub.root)[0]
    pages = list(page.pages("data/", delimiter="/"))
    assert [each.key for one in pages for each in one.entries] == ["data/train-0.bin", "data/train-1.bin"]
    assert [each for one in pages for each in one.prefixes] == ["data/ünï cöde/"]
    assert list(ps.list(f"{hub.root}none/")) == []
    with pytest.raises(Unsupported, match="delimiter must be '/'"):
        next(page.pages("", delimiter="-"))


def test_stat_names_the_content_by_its_digest(serve):
    hub = serve()
    small, large = ps.stat(f"{hub.root}README.md"), ps.stat(f"{hub.root}data/train-0.bin")
    assert (small.etag, small.size) == (git_oid(FILES["README.md"]), 6)
    assert large.checksum.holds(BIG)
    assert not large.checksum.holds(BIG[1:])
    assert hub.asked == {"api": 0, "resolvers": 2, "cdn": 0}


def test_reads_of_a_file_share_one_redirect_until_its_signature_is_refused(serve):
    hub = serve()
    source, key = open_source(f"{hub.root}data/train-0.bin")
    etag = source.head(key).etag
    for start in range(0, 2_000_000, 100_000):
        assert source.read(Span(key, start, start + 50, etag)) == BIG[start : start + 50]
    assert hub.asked["resolvers"] == 1
    hub.expire()
    assert source.read(Span(key, 7, 99, etag)) == BIG[7:99]
    assert hub.asked["resolvers"] == 2


def test_a_redirect_is_renewed_before_its_signature_expires(serve):
    hub = serve(signs_s=20)
    source, key = open_source(f"{hub.root}data/train-0.bin")
    for _ in range(3):
        assert source.read(Span(key, 0, 9)) == BIG[:9]
    assert hub.asked["resolvers"] == 3
    assert hub.asked["cdn"] == 3, "no request was refused"


def test_lifetime_of_a_signed_address_is_by_the_senders_clock():
    sent = "Sun, 29 Nov 2026 10:00:00 GMT"
    assert _lifetime_s("https://c/x?X-Amz-Date=20261129T100000Z&X-Amz-Expires=3600", sent) == 3570
    assert _lifetime_s("https://c/x?Expires=1795946460&Signature=s", sent) == 30
    assert _lifetime_s("https://c/x?X-Amz-Expires=3600", sent) == _lifetime_s("https://c/x", sent) == float("inf")


def test_a_whole_read_is_compared_with_the_sha256(serve):
    hub = serve()
    damage = [lambda body: b"?" + body[1:]]
    hub.damages = lambda body: damage.pop()(body) if damage else body
    listed = {each.key: each for each in ps.list(hub.root)}["data/train-0.bin"]
    source, key = open_source(listed.url)
    assert source.read(Span(key, 0, listed.size, listed.etag, whole=True)) == BIG
    assert not damage, "damaged once, read again"
    hub.damages = lambda body: b"?" + body[1:]
    with pytest.raises(ChecksumMismatch):
        source.read(Span(key, 0, listed.size, listed.etag, whole=True))


def test_a_moved_branch_is_noticed_by_what_was_listed_before_and_a_pinned_commit_stays(serve):
    hub = serve()
    old = hub.newest
    first = ps.Catalog.scan(hub.root)
    dataset = ps.MapDataset.from_catalog(first)
    at = [each.key for each in dataset].index("data/train-0.bin")
    hub.push(FILES | {"data/train-0.bin": b"new" * 1000})
    assert dataset[at].read() == BIG, "reads stay at the commit that was listed"
    list(ps.list(hub.root))
    with pytest.raises(Changed, match="pin @COMMIT"):
        dataset[at].read()
    assert dataset[at - 1].read() == FILES[dataset[at - 1].key], "other files are the same"
    pinned = f"{hub.root[:-1]}@{old}/data/train-0.bin"
    assert ps.open(pinned).read() == BIG
    assert hub.asked["api"] == 4, "a commit needs no look-up"


@pytest.mark.parametrize("status", [401, 403])
def test_gated_repository_is_an_error_that_says_so(serve, status):
    hub = serve(gated=True)
    options = ps.HFOptions(token=TOKEN) if status == 403 else None
    for read in (
        lambda: ps.open(f"{hub.root}README.md", store=options).read(),
        lambda: [*ps.list(hub.root, store=options)],
    ):
        with pytest.raises(Forbidden, match="the repository is gated: accept its terms on its page"):
            read()


def test_private_repository_revision_and_file_that_are_missing_each_have_an_error(serve):
    hub = serve(token=TOKEN)
    with pytest.raises(NotFound, match="no such repository, or a private one"):
        ps.open(f"{hub.root}README.md").read()
    good = ps.HFOptions(token=TOKEN)
    with pytest.raises(NotFound, match="no such branch, tag or commit"):
        ps.open(f"{hub.root[:-1]}@dev/README.md", store=good).read()
    with pytest.raises(NotFound, match="no such branch, tag or commit"):
        list(ps.list(f"{hub.root[:-1]}@dev/", store=good))
    with pytest.raises(NotFound, match="no such file in this revision") as caught:
        ps.stat(f"{hub.root}none", store=good)
    assert caught.value.missing == "object"
    with pytest.raises(NotFound, match="no such repository"):
        ps.stat("hf://datasets/org/other/README.md", store=good)


def test_pointer_in_place_of_the_content_is_refused(serve):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
    hub = serve(FILES | {"model.bin": pointer})
    with pytest.raises(Unusable, match="in the repository is a Git LFS pointer instead of the content"):
        ps.open(f"{hub.root}model.bin").read()
    hub.damages = lambda _: pointer
    source, key = open_source(f"{hub.root}data/train-0.bin")
    meta = source.head(key)
    with pytest.raises(Unusable, match="the hub sends a Git LFS pointer"):
        source.read(Span(key, 0, meta.size, meta.etag, whole=True))


def test_used_up_quota_is_waited_for_and_named_when_patience_ends(serve):
    hub = serve(quotas={"resolvers": 2}, window_s=2)
    for _ in range(3):
        assert ps.stat(f"{hub.root}README.md").size == 6
    assert hub.refused["resolvers"] <= 2
    hub.window_s, hub.quotas = 300, {"resolvers": 0}
    short = ps.HFOptions(retry=ps.RetryOptions(patience_s=1))
    with pytest.raises(Throttled, match="the rate limit of the token") as caught:
        ps.stat(f"{hub.root}data/train-1.bin", store=short)
    assert caught.value.retry_after_s > 200


def test_token_is_in_no_message_no_repr_and_no_log(serve, caplog):
    hub = serve(token=TOKEN)
    caplog.set_level(logging.DEBUG)
    options = ps.HFOptions(token=TOKEN)
    source, key = open_source(f"{hub.root}none", options)
    with pytest.raises(NotFound) as caught:
        source.head(key)
    source.read(Span("data/train-0.bin", 0, 5))
    driver = source._fetcher().driver
    shown = f"{caught.value}{vars(caught.value)}{options!r}{source!r}{driver!r}{driver._addresses}{caplog.text}"
    assert TOKEN not in shown
    assert "Signature" not in shown


def test_token_is_found_where_the_hubs_own_tools_keep_it(serve, monkeypatch, tmp_path):
    hub = serve(token=TOKEN)

    def works():
        try:
            return ps.stat(f"{hub.root}README.md").size == 6
        except NotFound:
            return False

    assert not works()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "token").write_text(f"{TOKEN}\n")
    assert works()
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    assert not works()
    monkeypatch.delenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "none"))
    assert not works()
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert works()
    assert ps.HFOptions(anonymous=True) == ps.HFOptions(anonymous=True)
    with pytest.raises(NotFound):
        ps.stat(f"{hub.root}README.md", store=ps.HFOptions(anonymous=True))


def test_invalid_token_is_unauthenticated(monkeypatch):
    with Scripted(lambda _, send: send(reply(401, b"", x_error_message="Invalid credentials")) or True) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        with pytest.raises(Unauthenticated, match="or the token invalid"):
            ps.stat("hf://datasets/org/name/x", store=ps.HFOptions(token="hf_wrong"))


def test_redirect_to_another_scheme_or_without_end_is_refused(monkeypatch):
    def answer(received, send):
        send(reply(302, b"", location=f"{received.path}x" if "loop" in received.path else "ftp://host/x"))
        return True

    with Scripted(answer) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        for key in ("loop", "ftp"):
            with pytest.raises(ConfigError, match="refused a redirect"):
                ps.open(f"hf://datasets/org/name/{key}").read()
        assert len(server.received) < 20


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[1]", b'[{"type": "file", "path": "x"}]'])
def test_listing_of_another_server_is_damaged(monkeypatch, body):
    with Scripted(lambda _, send: send(reply(200, body)) or True) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        for url in ("hf://datasets/org/name/", f"hf://datasets/org/name@{'0' * 40}/"):
            with pytest.raises(Damaged):
                list(ps.list(url))


def test_writes_are_refused_with_the_url_that_can_write(serve):
    hub = serve(kind="models")
    with pytest.raises(Unsupported, match=r"write to fsspec\+hf://org/name/x"):
        ps.open(f"{hub.root}x", "wb")
    with pytest.raises(Unsupported, match=r"cannot delete objects"):
        ps.delete(f"{hub.root}README.md")
    assert hub.asked == {"api": 0, "resolvers": 0, "cdn": 0}


def test_a_second_request_for_a_slow_read_goes_to_the_cdn_without_the_token(serve, monkeypatch):
    monkeypatch.setattr(hedging, "_LEAST", 50)  # conftest lets no store be known
    hub = serve(token=TOKEN)
    source, key = open_source(f"{hub.root}data/train-0.bin", ps.HFOptions(token=TOKEN))
    source.head(key)
    source.read_many([Span(key, start, start + 23) for start in range(3000, 6000)])
    hub.asked["cdn"] = 0
    hub.held.append((777, 800))
    starts = (*range(1000, 3000), 777, *range(3000, 5000))
    spans = [Span(key, start, start + 23) for start in starts]
    assert source.read_many(spans) == [BIG[span.start : span.stop] for span in spans]
    assert hub.second.is_set()
    assert hub.asked["resolvers"] == 1
    assert hub.asked["cdn"] >= 4001 + 1


def test_cache_answers_without_the_hub(serve, tmp_path):
    hub = serve()
    cached = ps.HFOptions(cache=ps.CacheOptions(path=str(tmp_path / "cache"), mode="immutable"))
    dataset = ps.MapDataset.from_prefix(f"{hub.root}data/", store=cached)
    first = [each.read() for each in dataset]
    asked = dict(hub.asked)
    assert [each.read() for each in dataset] == first
    assert hub.asked == asked


def test_weights_are_loaded_from_a_model(serve):
    hub = serve({"model.safetensors": save({"w": arange(10_000)})}, kind="models", token=TOKEN)
    found = ps.load_safetensors(f"{hub.root}model.safetensors", store=ps.HFOptions(token=TOKEN))
    assert equal(found["w"], arange(10_000))


def test_profile_of_a_repository_keeps_its_quotas(serve):
    hub = serve()
    with open_source(hub.root)[0] as source:
        driver = source._fetcher().driver
        part = scope_driver(driver, "data/", "penstock://hub/")
        source.read(Span("data/train-0.bin", 0, 5))
        read = [part.quota("read", key) for key in ("train-0.bin", "train-1.bin")]
        assert (read, part.quota("head", "train-0.bin"), part.quota("list", "")) == (
            ["cdn", "resolvers"],
            "resolvers",
            "api",
        )
        assert part.rates is driver.rates


def test_requests_slow_down_before_a_quota_is_used_up(serve):
    hub = serve({"a": b"a"}, name=f"org/{uuid4().hex}", quotas={"resolvers": 20_000}, window_s=300)
    hub.use("resolvers", 12_000)
    source, key = open_source(f"{hub.root}a")

    def bounds():
        return [each for each in ps.cache.node_status().rates if hub.name in each.requests]

    found = []
    for _ in range(6_000):
        source.head(key)
        # Kept: the bound ends as soon as the pace of this process is slow enough by itself.
        if found := bounds():
            break
    (rate,) = found
    assert "quota 'resolvers'" in rate.requests
    # Fewer than 8,000 in 300 s, and a little more for each second since it was stated.
    assert 5 < rate.per_s < 30
    assert hub.refused["resolvers"] == 0


READERS = """
import os, sys
from penstock.data.catalog.catalog import Catalog
from penstock.source import open_source
from penstock.values import Span
catalog = Catalog.open(sys.argv[1], root="hf://datasets/org/name/")
spans = [Span(each.key, 0, each.size, each.etag, whole=True) for each in catalog]
children = []
for _ in range(16):
    children.append(os.fork())
    if not children[-1]:
        source = open_source("hf://datasets/org/name/")[0]
        sizes = {len(source.read(span)) for _ in range(4) for span in spans}
        os._exit(sizes != {5000})
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


def test_sixteen_processes_keep_within_the_quota_of_their_node(serve, tmp_path):
    hub = serve({f"{n:03}": os.urandom(5000) for n in range(20)}, quotas={"resolvers": 200}, window_s=4)
    ps.Catalog.scan(hub.root).save(str(tmp_path / "catalog"))
    asked = hub.asked["api"]
    environ = os.environ | {"PYTHONPATH": str(Path(ps.__file__).parents[1])}
    command = [sys.executable, "-c", READERS, str(tmp_path / "catalog")]
    subprocess.run(command, env=environ, check=True, timeout=300)
    assert hub.asked["api"] == asked, "no process lists"
    assert hub.asked["resolvers"] - hub.refused["resolvers"] == 16 * 20, "one for each file and process"
    assert hub.asked["cdn"] == 16 * 20 * 4


def test_shards_are_read_by_their_samples(serve, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"n": range(500), "text": ["x" * 50] * 500}), tmp_path / "0.parquet", row_group_size=100)
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        for n in range(20):
            info = tarfile.TarInfo(f"{n:02}.txt")
            info.size = 1000
            tar.addfile(info, io.BytesIO(b"%04d" % n * 250))
    files = {"rows/0.parquet": tmp_path / "0.parquet", "tars/0.tar": tmp_path / "0.tar"}
    hub = serve({name: path.read_bytes() for name, path in files.items()}, token=TOKEN)
    options = ps.HFOptions(token=TOKEN)
    rows = ps.MapDataset.from_shards(f"{hub.root}rows/", format="parquet", store=options)
    assert [row["n"] for row in rows] == [*range(500)]
    assert hub.asked["resolvers"] <= 2, "the footer's redirect serves the rows"
    samples = ps.MapDataset.from_shards(f"{hub.root}tars/", format="tar", store=options)
    assert [sample["txt"].read()[:4] for sample in samples] == [b"%04d" % n for n in range(20)]


RANK = """
import os, sys, torch.distributed as dist, penstock as ps
rank, url, address = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{address}", rank=rank, world_size=3)
dataset = ps.MapDataset.from_prefix(url)
assert [len(dataset[n].read()) for n in range(len(dataset))] == [5000] * 30
dist.barrier()
"""


def test_ranks_of_a_group_list_once(serve, tmp_path):
    hub = serve({f"{n:03}": os.urandom(5000) for n in range(30)}, page=10, quotas={"api": 4})
    environ = os.environ | {"PYTHONPATH": str(Path(ps.__file__).parents[1])}
    command = [sys.executable, "-c", RANK]
    ranks = [subprocess.Popen([*command, str(n), hub.root, str(tmp_path / "group")], env=environ) for n in range(3)]
    assert [rank.wait(timeout=300) for rank in ranks] == [0, 0, 0]
    assert (hub.asked["api"], hub.refused["api"]) == (4, 0), "the commit and three pages, for all ranks"
    assert hub.asked["resolvers"] == hub.asked["cdn"] == 90
