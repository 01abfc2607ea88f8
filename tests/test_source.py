"""The waist: one bucket by full keys, opened lazily, the same in every thread, fork and process."""

import gc
import pickle
import sys
import threading
import uuid
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection
from multiprocessing.reduction import ForkingPickler
from time import time

import numpy as np
import pytest

from penstock import source as module
from penstock.engine.node.member import member
from penstock.engine.transport.easy import Easy
from penstock.errors import ConfigError, Forbidden, NotFound, PenstockError, Unauthenticated, Unreachable, Unusable
from penstock.options import ReadOptions, RetryOptions, TransportOptions
from penstock.source import Source, open_source
from penstock.stores.direct import direct
from penstock.stores.s3.options import S3Options
from penstock.stores.urls import parse
from penstock.testing.faults.amazon import check_signature
from penstock.testing.faults.message import Refused, Request
from penstock.testing.servers import Scripted, reply
from penstock.values import Span
from tests.children import in_child, python
from tests.engine.fetch.store import Gate, Objects
from tests.threads import until

NAMES = [f"dir/{number:03}" for number in range(120)]


@pytest.fixture
def source(bucket):
    return Source(parse(bucket.url), bucket.store)


@pytest.fixture
def filled(source):
    for name in NAMES:
        source.put(name, name.encode() * 50)
    return source


def _spans(names=NAMES):
    return [Span(name, 0, len(name) * 50, whole=True) for name in names]


def test_a_bucket_from_end_to_end(filled, bucket):
    entries = [entry for page in filled.pages("dir/") for entry in page.entries]
    assert [entry.key for entry in entries] == NAMES
    assert filled.head(NAMES[3]).etag == entries[3].etag
    assert filled.read_many(_spans()) == [name.encode() * 50 for name in NAMES]
    assert list(filled.lookahead(iter(_spans()))) == [name.encode() * 50 for name in NAMES]
    assert filled.read(Span(NAMES[0], 4, 8)) == filled.open_read(NAMES[0]).read()[4:8]
    buffer = np.zeros(100, np.uint8)
    filled.read_into(Span(NAMES[0], 0, 100), buffer)
    assert buffer.tobytes() == (NAMES[0].encode() * 50)[:100]
    filled.copy(NAMES[0], "copy")
    filled.delete([*NAMES, "never/was"])
    assert [entry.key for page in filled.pages("") for entry in page.entries] == ["copy"]
    assert (filled.root, filled.url("a b")) == (bucket.url, f"{bucket.url}a b")


def test_many_are_looked_up_side_by_side_and_in_order(filled):
    assert [meta.key for meta in filled.stat_many([NAMES[5], NAMES[0], NAMES[5]])] == [NAMES[5], NAMES[0], NAMES[5]]
    assert filled.stat_many([]) == filled.stat_existing([]) == []
    assert filled.stat_existing(["gone", NAMES[7], "dir/"]) == [None, filled.head(NAMES[7]), None]
    with pytest.raises(NotFound, match="never/was"):
        filled.stat_many([NAMES[0], "never/was", "nor/this"])
    gate = Gate()
    with Scripted(Objects({str(number): b"x" * number for number in range(40)}, gate)) as server:
        source, _ = open_source("s3://bucket/", S3Options(endpoint=server.url, anonymous=True))
        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(source.stat_many, [str(number) for number in range(40)])
            gate.wait_for(8)  # however many the pace allows at first: more than one
            gate.opened.set()
            assert [meta.size for meta in looking.result(30)] == list(range(40))


def test_forbidden_stat_existing_raises_instead_of_reporting_missing():
    with Scripted(lambda _received, send: send(reply(403)) or True) as server:
        source, _ = open_source("s3://bucket/", S3Options(endpoint=server.url, anonymous=True))
        with pytest.raises(Forbidden):
            source.stat_existing(["a", "b"])


def test_error_with_circular_cause_chain_is_raised_normally():
    def refuse():
        error, cause = NotFound("none"), NotFound("because")
        error.__cause__, cause.__cause__ = cause, error
        raise error

    fetcher = open_source("memory://circle/")[0]._fetcher()
    with pytest.raises(NotFound, match="none"):
        fetcher.run(partial(lambda _key: direct(refuse), "key"))


def test_a_refusal_that_was_handled_keeps_nothing_alive_that_its_callers_held(source, tmp_path):
    for each, prefix in ((source, ""), open_source("memory://held/"), open_source(f"{tmp_path}/")):
        _keeps_nothing(each, prefix)


def _keeps_nothing(source, prefix):
    class Held:
        pass

    def looks():
        held = Held()
        assert source.stat_existing([f"{prefix}none", f"{prefix}neither"]) == [None, None]
        try:
            source.head(f"{prefix}none")
        except NotFound:
            return weakref.ref(held)

    gc.disable()  # whoever holds a state of gibibytes cannot wait for it
    try:
        held = looks()
        until(lambda: held() is None)  # the I/O thread may be about to let go
    finally:
        gc.enable()


def test_a_delimiter_groups(filled):
    assert [page.prefixes for page in filled.pages("", delimiter="/")] == [("dir/",)]


def test_nothing_is_sent_before_it_is_asked_for():
    with Scripted(lambda _received, send: send(reply(200)) or True) as server:
        source, key = open_source("s3://bucket/some/key", S3Options(endpoint=server.url, anonymous=True))
        source.open_write(key)
        assert (key, server.received, server.connections) == ("some/key", [], 0)


def test_reads_into_memory_are_held_to_this_process_s_share_of_the_node(bucket, monkeypatch):
    source, _ = open_source(bucket.url, bucket.store)
    with source.open_write("key") as file:
        file.write(bytes(range(10)))
    drawn = []

    def places():
        for at in range(10):
            drawn.append(at)
            yield Span("key", at, at + 1), bytearray(1)

    def hold(budget, options):
        assert options is source.options.node
        budget.bytes_limit //= 2
        return budget

    monkeypatch.setattr(member, "hold", hold)
    for told, _ in enumerate(source.scatter(places(), 8), 1):
        assert len(drawn) < told + 4
    assert len(drawn) == 10


def test_all_sources_of_a_store_share_one_engine(bucket):
    one, same = (Source(parse(bucket.url), bucket.store) for _ in range(2))
    other = Source(parse(bucket.url), replace(bucket.store, read=ReadOptions(split_bytes=1)))
    assert one._fetcher() is same._fetcher()
    assert one._fetcher() is not other._fetcher()


def test_threads_share_a_source(filled):
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: filled.read_many(_spans(NAMES[:20])), range(16)))
    assert all(result == results[0] for result in results)


def test_trap_01_a_fork_after_the_parent_listed_and_read(filled):
    expected = filled.read_many(_spans())
    stop, busy = threading.Event(), threading.Event()

    def keep_busy():
        while not stop.is_set():
            filled.read_many(_spans(NAMES[:20]))
            busy.set()

    def reads():
        assert filled.read_many(_spans()) == expected

    thread = threading.Thread(target=keep_busy)
    thread.start()
    assert busy.wait(60)
    try:
        for _ in range(4):
            in_child(reads)
    finally:
        stop.set()
        thread.join()
    reads()


def test_unpickled_source_keeps_the_given_store_options(source):
    source.put("key", b"bytes")
    again = pickle.loads(ForkingPickler.dumps(source))
    assert again._store == source._store
    assert again.read(Span("key")) == b"bytes"


def test_secrets_of_the_environment_stay_in_it(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket.server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket.server.secret_key)
    source = Source(parse(bucket.url), S3Options(endpoint=bucket.server.endpoint))
    source.put("key", b"bytes")
    travelling = pickle.dumps(source)
    assert bucket.server.access_key.encode() not in travelling
    assert bucket.server.secret_key not in repr(vars(source))


def test_trap_09_an_explicit_endpoint_beats_the_environment(bucket, monkeypatch):
    with Scripted(lambda _received, send: send(reply(500)) or True) as wrong:
        for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
            monkeypatch.setenv(name, wrong.url)
        source = Source(parse(bucket.url), bucket.store)
        source.put("key", b"bytes")
        assert source.read(Span("key")) == b"bytes"
        assert wrong.received == []
        said = Source(parse(bucket.url), replace(bucket.store, endpoint=None, retry=RetryOptions(attempts=1)))
        with pytest.raises(PenstockError):
            said.head("key")
        assert len(wrong.received) == 1, "and the environment counts where nothing was said"


def test_a_proxy_of_the_environment_is_used(monkeypatch):
    with Scripted(lambda _received, send: send(reply(200, content_length="5")) or True) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        source, key = open_source("s3://bucket/key", S3Options(endpoint="http://store.invalid", anonymous=True))
        assert source.head(key).size == 5
        assert proxy.received[0].path == "http://store.invalid/bucket/key"


@pytest.mark.parametrize(
    ("virtual", "path", "host"), [("virtual", "/key", "bucket.localhost"), ("path", "/bucket/key", "localhost")]
)
def test_addressing_option_selects_bucket_in_host_or_path(virtual, path, host):
    with Scripted(lambda _received, send: send(reply(200, content_length="5")) or True) as server:
        port = server.url.rpartition(":")[2]
        store = S3Options(endpoint=f"http://localhost:{port}", anonymous=True, addressing=virtual)
        source, key = open_source("s3://bucket/key", store)
        assert source.head(key).size == 5
        assert (server.received[0].path, server.received[0].headers["host"]) == (path, f"{host}:{port}")


def test_unreachable_endpoint_raises_with_advice_to_check_endpoint():
    store = S3Options(endpoint="http://127.0.0.1:1", anonymous=True, retry=RetryOptions(first_contact_s=0.5))
    with pytest.raises(Unreachable, match=r"check endpoint=.*s3://bucket/key"):
        Source(parse("s3://bucket/"), store).head("key")


def test_invalid_endpoint_raises_when_source_is_opened():
    with pytest.raises(ConfigError, match=r"S3Options\.endpoint"):
        open_source("s3://bucket/key", S3Options(endpoint="nonsense"))


def test_delete_raises_refusal_and_starts_no_further_requests():
    def script(received, send):
        send(reply(403 if received.path.endswith("/7") else 204))
        return True

    with Scripted(script) as server:
        source, _ = open_source("s3://bucket/", S3Options(endpoint=server.url, anonymous=True))
        with pytest.raises(Forbidden):
            source.delete([str(number) for number in range(600)])
        assert len(server.received) <= 256, "what had begun goes on, and nothing more begins"


def test_a_buffer_of_another_size_is_refused(source):
    source.put("key", b"0123456789")
    with pytest.raises(Unusable, match="buffer of 5"):
        source.read_into(Span("key", 0, 10), bytearray(5))


def test_local_and_memory_are_sources_too(tmp_path):
    for url in (f"{tmp_path}/key", f"file://{tmp_path}/key", f"memory://{tmp_path.name}/key"):
        source, key = open_source(url)
        source.put(key, b"bytes")
        assert source.read(Span(key)) == b"bytes"
        assert source.url(key).endswith("key")
        source.delete([key])
        with pytest.raises(NotFound):
            source.head(key)


def test_an_interpreter_that_read_ends_quickly_and_quietly(bucket, source):
    source.put("key", b"bytes" * 100_000)
    script = """
        import sys
        from penstock import S3Options, StoreOptions
        from penstock.source import open_source
        from penstock.values import Span
        store = S3Options(endpoint=sys.argv[1], access_key=sys.argv[2], secret_key=sys.argv[3])
        source, key = open_source(sys.argv[4], store)
        ahead = source.lookahead(Span(key) for _ in range(10_000))
        print(len(next(ahead)))
    """
    server = bucket.server
    ended = python(script, server.endpoint, server.access_key, server.secret_key, f"{bucket.url}key", limit_s=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "500000\n", "")


def test_forked_child_creates_its_own_engines(source):
    source.put("key", b"bytes")
    assert module._engines

    def child():
        assert not module._engines
        assert source.read(Span("key")) == b"bytes"

    in_child(child)


KEYS = {"AWS_ACCESS_KEY_ID": "KEYS", "AWS_SECRET_ACCESS_KEY": "s"}
IDENTITIES = [  # the environment before and after, and whether botocore's chain can be asked again
    pytest.param({"AWS_PROFILE": "other"}, {}, True, id="profile-to-default"),
    pytest.param({"AWS_PROFILE": "other"}, {"AWS_PROFILE": "default"}, True, id="profile-to-profile"),
    pytest.param(KEYS, {}, True, id="keys-to-default"),
    pytest.param(KEYS, {**KEYS, "AWS_ACCESS_KEY_ID": "MORE"}, True, id="keys-to-keys"),
    pytest.param({}, {"AWS_PROFILE": "other"}, False, id="default-to-profile"),
    pytest.param({}, KEYS, False, id="default-to-keys"),
]


@pytest.fixture
def signer(tmp_path, monkeypatch):
    """Return what tells which key id a source's requests are signed with; two profiles and no keys are there."""
    credentials = tmp_path / "credentials"
    credentials.write_text(
        "[default]\naws_access_key_id = DEFAULT\naws_secret_access_key = s\n"
        "[other]\naws_access_key_id = OTHER\naws_secret_access_key = s\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))

    def script(received, send):
        signers.append(received.headers["authorization"].partition("Credential=")[2].partition("/")[0])
        send(reply(200, content_length="0", etag='"e"'))
        return True

    signers: list[str] = []
    with Scripted(script) as server:

        def signs(source):
            source.head("key")
            return signers[-1]

        signs.server, signs.credentials = server, credentials
        signs.open = lambda **keys: open_source("s3://bucket/", S3Options(endpoint=server.url, **keys))[0]
        yield signs


def test_a_new_source_takes_the_identity_of_its_moment_and_an_old_one_keeps_its_own(signer, monkeypatch):
    default = signer.open()
    assert signer(default) == "DEFAULT"
    monkeypatch.setenv("AWS_PROFILE", "other")
    other = signer.open()
    assert signer(other) == "OTHER"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEYS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    keys = signer.open()
    assert signer(keys) == "KEYS"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "MORE")
    late = signer.open()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "LATER")
    assert signer(late) == "LATER", "nobody is asked before there is something to sign"
    assert signer(signer.open(profile="default")) == "DEFAULT"
    assert signer(signer.open(access_key="MINE", secret_key="s")) == "MINE"
    assert [signer(each) for each in (default, other, keys, late)] == ["DEFAULT", "OTHER", "KEYS", "LATER"]
    assert signer(pickle.loads(pickle.dumps(default))) == "LATER", "elsewhere it is looked up anew"


@pytest.mark.parametrize("botocore", [True, False])
@pytest.mark.parametrize(("before", "after", "renewed"), IDENTITIES)
def test_a_renewal_keeps_the_identity_of_the_first_request(signer, monkeypatch, before, after, renewed, botocore):
    """Else account A's source would sign as B, against A's endpoint."""
    if not botocore:
        monkeypatch.setitem(sys.modules, "botocore.session", None)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    source = signer.open()
    signed = signer(source)
    for name in before:
        monkeypatch.delenv(name)
    for name, value in after.items():
        monkeypatch.setenv(name, value)
    source._fetcher().driver.identity.invalidate()  # as the server does, with ExpiredToken
    if botocore and not renewed:
        with pytest.raises(Unauthenticated, match="now names another identity: open a new source"):
            signer(source)
    else:
        assert signer(source) == signed
    assert signer(signer.open()) != signed


def test_a_renewal_reads_the_profile_s_file_afresh(signer, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "other")
    source = signer.open()
    assert signer(source) == "OTHER"
    signer.credentials.write_text(signer.credentials.read_text().replace("OTHER", "ROTATED"))
    monkeypatch.delenv("AWS_PROFILE")
    source._fetcher().driver.identity.invalidate()
    assert signer(source) == "ROTATED"


def test_another_key_in_the_file_is_another_identity_and_the_same_one_is_not(signer):
    first = signer.open()
    assert signer(first) == "DEFAULT"
    text = signer.credentials.read_text()
    signer.credentials.write_text(text + "[more]\nregion = x\n")
    same = signer.open()
    assert signer(same) == "DEFAULT"
    assert same._fetcher() is first._fetcher()
    signer.credentials.write_text(text.replace("DEFAULT", "ROTATED"))
    assert [signer(signer.open()), signer(first)] == ["ROTATED", "DEFAULT"]
    assert "ROTATED" not in repr(vars(first))


def test_engines_of_former_identities_close_unless_they_are_in_use(signer, monkeypatch):
    freed = []
    monkeypatch.setattr(Easy, "close", lambda easy, close=Easy.close: (close(easy), freed.append(easy.pointer)))
    text, former = signer.credentials.read_text(), []
    for number in range(8):
        signer.credentials.write_text(text.replace("DEFAULT", f"ROTATED{number}"))
        source = signer.open()
        assert signer(source) == f"ROTATED{number}"
        if number == 0:
            first, engine = source, source._fetcher()
        else:
            former.append(weakref.ref(source._fetcher()))
    assert first._fetcher() is engine
    assert signer(first) == "ROTATED0"
    until(lambda: len(freed) >= 3)
    assert [each() is None for each in former] == [True] * 3 + [False] * 4
    assert signer(signer.open()) == "ROTATED7"
    in_child(lambda: signer.open().head("key"))


class _Gateway:
    """A gateway under the path ``/gate/s3``: it checks signatures over its whole address, and asks ``server``."""

    path = "/gate/s3"

    def __init__(self, server):
        self._keys = {server.access_key: server.secret_key}
        self._to = server.endpoint.removeprefix("http://")

    def __call__(self, received, send):
        path, _, query = received.path.partition("?")
        request = Request(received.method, path, query, received.headers, bytearray(received.body))
        try:
            check_signature(request, self._keys, frozenset(["us-east-1"]), time())
        except Refused as refused:
            send(reply(refused.status, refused.answer().body))
            return True
        name, _, rest = received.headers["host"].partition(".localhost")
        asked = (f"/{name}" if rest else "") + received.path.removeprefix(self.path)
        headers = {name: value for name, value in received.headers.items() if name != "host"}
        connection = HTTPConnection(self._to)
        connection.request(received.method, asked, received.body, headers)
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders() if name.lower() != "transfer-encoding"}
        send(reply(answer.status, answer.read(), **headers))
        return True


@pytest.mark.parametrize("addressing", ["path", "virtual"])
def test_an_endpoint_under_a_path_works(moto_server, addressing):
    name = f"test-{uuid.uuid4().hex}"
    moto_server.client().create_bucket(Bucket=name)
    with Scripted(_Gateway(moto_server)) as server:
        host = server.url.replace("127.0.0.1", "localhost") if addressing == "virtual" else server.url
        options = replace(moto_server.store, endpoint=f"{host}{_Gateway.path}/", addressing=addressing)
        source, _ = open_source(f"s3://{name}/", options)
        assert source.put("dir/a b", b"bytes")
        with source.open_write("dir/large") as file:
            file.write(b"x" * (17 << 20))
        source.copy("dir/a b", "dir/c")
        keys = [entry.key for page in source.pages("dir/") for entry in page.entries]
        assert keys == ["dir/a b", "dir/c", "dir/large"]
        assert source.read(Span("dir/c", 1, 4)) == b"yte"
        source.delete(["dir/a b", "dir/c"])
        assert [meta and meta.size for meta in source.stat_existing(["dir/a b", "dir/large"])] == [None, 17 << 20]
        assert {received.headers["host"].startswith(name) for received in server.received} == {addressing == "virtual"}


def test_a_store_that_is_not_verified_is_warned_of_once(caplog):
    options = S3Options(anonymous=True, retry=RetryOptions(attempts=1), transport=TransportOptions(verify=False))
    for endpoint in ("https://127.0.0.1:1", "https://127.0.0.1:1", "http://127.0.0.1:1"):
        for bucket in ("one", "two"):
            with pytest.raises(Unreachable):
                open_source(f"s3://{bucket}/", replace(options, endpoint=endpoint))[0].head("key")
    (warning,) = caplog.records
    assert (warning.name, warning.levelname) == ("penstock", "WARNING")
    assert "https://127.0.0.1:1 is not verified" in warning.getMessage()


def test_cache_variable_counts_for_the_next_source_of_a_known_store(tmp_path, monkeypatch):
    monkeypatch.delenv("PENSTOCK_CACHE", raising=False)
    caches = [open_source("memory://known/")[0].options.cache]
    for named in (str(tmp_path), "0", ""):
        monkeypatch.setenv("PENSTOCK_CACHE", named)
        caches.append(open_source("memory://known/")[0].options.cache)
    assert [cache and cache.path for cache in caches] == [None, str(tmp_path), None, None]
