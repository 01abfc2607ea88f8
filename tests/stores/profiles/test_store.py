"""A profile's URLs and options work wherever a URL goes, in every process, and say what is wrong with their file."""

import copy
import inspect
import logging
import pickle
import uuid
from typing import Protocol

import pytest

import penstock as ps
from penstock import errors
from penstock.engine.contracts import driver as contract
from penstock.engine.contracts.driver import Delete, Driver, Head, List, Multipart, Put, Read
from penstock.engine.support import supports
from penstock.engine.transport.work import Threads
from penstock.errors import ConfigError, InvalidURL, ManifestError, NotFound, Unusable
from penstock.source import Source, open_source
from penstock.stores.memory import MemoryDriver
from penstock.stores.profiles import lookup
from penstock.stores.profiles.store import _VERBS, scope_driver
from penstock.stores.urls import check_deletable, parse
from penstock.testing.drivers import DriverContract, Trial
from tests.children import python
from tests.edges.launch import program
from tests.observe.reads import lines_of
from tests.readonly import ReadOnly

TRAINING = """
import sys
import fsspec
import penstock as ps
import torch
from penstock.cli import main
from penstock.interop.fsspec import register

def key(sample):
    return sample.url, bytes(sample.data)

def command(*words):
    sys.argv = ["penstock", *words]
    try:
        main()
    except SystemExit as end:
        return end.code

if __name__ == "__main__":
    for number in range(6):
        with ps.open(f"penstock://data/train/{number}", "wb") as file:
            file.write(b"%d" % number)
    urls = [f"penstock://data/train/{number}" for number in range(6)]
    assert [each.url for each in ps.list("penstock://data/train/")] == urls
    bucket = sys.argv[1]
    assert [each.url for each in ps.list(bucket + "base/train/", store="data")] == [
        f"{bucket}base/train/{number}" for number in range(6)]
    for dataset, how in (
        (ps.MapDataset.from_prefix("penstock://data/train/", transform=key), "fork"),
        (ps.IterableDataset.from_prefix("penstock://data/train/", transform=key), "fork"),
        (ps.MapDataset.from_prefix(bucket + "base/train/", transform=key, store="data"), "fork"),
        (ps.MapDataset.from_objects(urls, transform=key), "spawn"),
    ):
        loader = ps.DataLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context=how, collate_fn=list)
        found = [pair for batch in loader for pair in batch]
        assert sorted(data for _, data in found) == [b"%d" % number for number in range(6)], (how, found)
    catalog = ps.Catalog.scan("penstock://data/train/")
    catalog.save("penstock://data/catalog.penstock")
    assert ps.MapDataset.from_catalog("penstock://data/catalog.penstock", transform=key)[3] == (urls[3], b"3")
    ps.save({"weight": torch.arange(3)}, "penstock://data/run/model.pt")
    assert ps.load("penstock://data/run/model.pt")["weight"].tolist() == [0, 1, 2]
    manager = ps.CheckpointManager("penstock://data/steps")
    manager.save(1, {"weight": torch.arange(3)})
    assert ps.CheckpointManager("penstock://data/steps").steps() == [1]
    ps.copy("penstock://data/train/5", "penstock://data/copied")
    ps.delete("penstock://data/train/5")
    register("penstock")
    with fsspec.open("penstock://data/copied") as file:
        assert file.read() == b"5"
    assert fsspec.filesystem("penstock").ls("data/train", detail=False)[0] == "data/train/0"
    assert command("ls", "penstock://data/train/") == 0
    assert command("cp", "penstock://data/copied", "here") == 0
    assert command("mv", "penstock://data/copied", "penstock://data/moved") == 0
    assert command("rm", "penstock://data/moved") == 0
"""


@pytest.fixture
def toml(tmp_path, monkeypatch):
    """Return a function that writes the project's file, in a directory where the process is, for this test alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lookup, "_FRESH_S", -1.0)
    monkeypatch.setattr(errors, "_aliases", {})

    def write(text):
        aside = tmp_path / "aside"
        aside.write_text(text)
        aside.chmod(0o600)
        return aside.replace(tmp_path / "penstock.toml")

    return write


def test_a_profile_serves_a_training_from_its_file_alone(bucket, toml, tmp_path):
    (tmp_path / "secret").write_text(bucket.server.secret_key + "\n")
    toml(f"""
[profiles.server]
provider = "s3"
retry.attempts = 9
[profiles.server.options]
endpoint = "{bucket.server.endpoint}"
region = "${{REGION:-us-east-1}}"
access_key = "${{KEY_ID}}"
secret_key = {{ file = "secret" }}

[profiles.data]
extends = "server"
url = "{bucket.url}base"
""")
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    told = program(script, bucket.url, KEY_ID=bucket.server.access_key, PENSTOCK_CONFIG=str(tmp_path / "penstock.toml"))
    assert told.returncode == 0, told.stderr
    assert "penstock://data/train/4" in told.stdout
    found = {each["Key"] for each in bucket.client.list_objects_v2(Bucket=bucket.name)["Contents"]}
    assert "base/train/4" in found
    assert all(each.startswith("base/") for each in found)


@pytest.fixture
def memory(toml):
    """Return the URL of a set in memory, which the profile ``data`` names."""
    url = f"memory://{uuid.uuid4().hex}/base/"
    toml(f"[profiles.data]\nurl = '{url}'\nread.ahead_items = 7\n[profiles.other]\nprovider = 's3'\n")
    return url


def test_a_path_of_a_profile_is_an_object_below_its_url(memory):
    with ps.open("penstock://data/a b/%20", "wb") as file:
        file.write(b"x")
    assert ps.open(f"{memory}a b/%20").read() == b"x"
    assert ps.stat("penstock://data/a b/%20").url == "penstock://data/a b/%20"
    assert open_source("penstock://data/")[0].options.read.ahead_items == 7


def test_an_error_gives_both_addresses_and_so_after_a_pickle(memory):
    with pytest.raises(NotFound) as missing:
        ps.open("penstock://data/nope")
    for error in (missing.value, pickle.loads(pickle.dumps(missing.value))):
        assert f"[{memory}nope = penstock://data/nope]" in str(error)
    again = NotFound("gone", url="penstock://data/x")
    assert str(again) == f"gone [penstock://data/x = {memory}x]"


@pytest.mark.usefixtures("memory")
def test_given_options_count_before_the_profile_s():
    given = ps.StoreOptions(retry=ps.RetryOptions(attempts=2))
    options = open_source("penstock://data/x", given)[0].options
    assert (options.retry.attempts, options.read.ahead_items) == (2, 7)
    more = ps.StoreOptions(read=ps.ReadOptions(ahead_items=3))
    assert open_source("penstock://data/x", more)[0].options.read.ahead_items == 3


def test_a_source_travels_by_name_and_finds_the_profile_where_it_arrives(memory, toml):
    source = open_source("penstock://data/x")[0]
    text = pickle.dumps(source)
    assert b"ahead_items" not in text
    toml(f"[profiles.data]\nurl = '{memory}'\nread.ahead_items = 9\n")
    assert pickle.loads(text).options.read.ahead_items == 9
    assert copy.deepcopy(parse("penstock://data/x")) == parse("penstock://data/x")


def test_a_changed_file_is_read_again_and_a_changed_variable_too(memory, toml, monkeypatch):
    toml(f"[profiles.data]\nurl = '{memory}'\nread.ahead_items = '${{N:-5}}'\n")
    assert open_source("penstock://data/x")[0].options.read.ahead_items == 5
    monkeypatch.setenv("N", "6")
    assert open_source("penstock://data/x")[0].options.read.ahead_items == 6
    toml(f"[profiles.data]\nurl = '{memory}'\n")
    assert open_source("penstock://data/x")[0].options.read.ahead_items == 512


def test_only_the_used_profile_s_variables_are_expanded(toml):
    toml("[profiles.one]\nurl = 'memory://one'\n[profiles.two]\nurl = 'memory://${NOT_SET_ANYWHERE}'\n")
    assert not [*ps.list("penstock://one/")]
    with pytest.raises(ConfigError, match=r"penstock.toml:4: profiles.two.url: the variable NOT_SET_ANYWHERE"):
        [*ps.list("penstock://two/")]


@pytest.mark.usefixtures("memory")
def test_a_catalog_follows_its_profile_to_another_store(toml, tmp_path):
    for number in range(3):
        with ps.open(f"penstock://data/train/{number}", "wb") as file:
            file.write(b"%d" % number)
    here = ps.Catalog.scan("penstock://data/train/")
    here.save("penstock://data/catalog")
    (tmp_path / "disk/train").mkdir(parents=True)
    for number in range(3):
        (tmp_path / f"disk/train/{number}").write_bytes(b"%d" % number)
    ps.copy("penstock://data/catalog", tmp_path / "disk/catalog")
    toml("[profiles.data]\nurl = 'disk'\n")
    there = ps.MapDataset.from_prefix("penstock://data/train/")
    assert there.catalog.digest == here.digest
    moved = ps.Catalog.open("penstock://data/catalog", root="penstock://data/train/")
    assert [each.key for each in moved] == [each.key for each in here]
    toml("[profiles.other]\nurl = 'disk'\n")
    with pytest.raises(ManifestError, match="pass root='penstock://data/train/'"):
        ps.Catalog.open("penstock://other/catalog")
    assert ps.Catalog.open("penstock://other/catalog", root="penstock://other/train/").digest == here.digest


def test_a_manifest_names_objects_by_the_store_s_urls_too(memory):
    with ps.open("penstock://data/m.txt", "wb") as file:
        file.write(f"{memory}x\ny\npenstock://data/z\n".encode())
    dataset = ps.MapDataset.from_manifest("penstock://data/m.txt")
    assert [each.key for each in dataset.catalog] == ["x", "y", "z"]
    with ps.open("penstock://data/m.txt", "wb") as file:
        file.write(b"memory://elsewhere/x\n")
    with pytest.raises(ManifestError, match="is not in penstock://data/"):
        ps.MapDataset.from_manifest("penstock://data/m.txt")


def test_an_object_is_not_copied_onto_itself_by_another_name(memory):
    with ps.open("penstock://data/x", "wb") as file:
        file.write(b"x")
    with pytest.raises(InvalidURL, match="onto itself"):
        ps.copy("penstock://data/x", f"{memory}x")
    ps.copy("penstock://data/x", f"{memory}y")
    assert ps.open("penstock://data/y").read() == b"x"


def test_a_profile_of_files_is_confined_and_protected(toml, tmp_path, monkeypatch):
    toml(f"[profiles.files]\nurl = 'disk'\n[profiles.home]\nurl = '{tmp_path}'\n")
    with pytest.raises(InvalidURL, match=r"'\.\.' does not leave the directory"):
        parse("penstock://files/a/../../x")
    with ps.open("penstock://files/a/b", "wb") as file:
        file.write(b"x")
    assert (tmp_path / "disk/a/b").read_bytes() == b"x"
    monkeypatch.chdir(tmp_path / "disk/a")
    with pytest.raises(InvalidURL, match="this is the working directory"):
        check_deletable(parse("penstock://home/disk/a"))
    check_deletable(parse("penstock://home/disk/a/b"))


def test_store_names_a_profile_for_another_url(toml):
    toml("[profiles.minio]\nprovider = 's3'\noptions.endpoint = 'http://127.0.0.1:1'\nread.ahead_items = 3\n")
    source = Source(parse("s3://bucket/"), "minio")
    assert (source.options.endpoint, source.options.read.ahead_items) == ("http://127.0.0.1:1", 3)
    assert pickle.loads(pickle.dumps(source)).options == source.options
    assert open_source("local", "minio")[0].options.read.ahead_items == 3
    assert open_source("memory://x/", "minio")[0].options.read.ahead_items == 3


def test_a_literal_secret_that_all_may_read_is_warned_of_once(toml, caplog, monkeypatch):
    monkeypatch.setattr(lookup, "_warned", set())
    monkeypatch.setenv("PENSTOCK_CONFIG", "penstock.toml")
    path = toml("[profiles.x]\nprovider = 's3'\noptions = { access_key = 'AKIA', secret_key = 'hushhush' }\n")
    with caplog.at_level(logging.WARNING, "penstock"):
        lookup.load("x")
        assert not caplog.records
        path.chmod(0o644)
        toml(path.read_text() + "\n")
        path.chmod(0o644)
        lookup.load("x")
        toml(path.read_text() + "\n")
        path.chmod(0o644)
        lookup.load("x")
    assert len(caplog.records) == 1
    assert (
        f"{path} can be read by every user of this machine, and holds secrets (access_key, secret_key)" in caplog.text
    )
    assert "hushhush" not in caplog.text


def test_no_repr_shows_a_secret(toml, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CONFIG", "penstock.toml")
    toml("[profiles.x]\nurl = 's3://bucket/'\noptions = { access_key = 'AKIAhush', secret_key = 'hushhush' }\n")
    assert "hush" not in repr(lookup.load("x")) + repr(parse("penstock://x/").store) + repr(lookup._held)
    with pytest.raises(Unusable, match="secret"):
        pickle.dumps(open_source("penstock://x/")[0].options)
    assert b"hush" not in pickle.dumps(open_source("penstock://x/")[0])


MISUSES = [
    # the file, the profile, words of the refusal
    ("", "penstock://x/", "no profile 'x'"),
    ("[profiles.train]\nurl='memory://a'", "penstock://tarin/", "no profile 'tarin': did you mean 'train'?"),
    ("[profiles.x]", "penstock://x/", ":1: profiles.x names no store: add url = "),
    ("[profiles.x]\nprovider='s3'", "penstock://x/", "has no url: use it as store='x'"),
    ("[profiles.x]\nprovider='s33'", "penstock://x/", ":2: profiles.x.provider: no provider 's33': did you mean 's3'?"),
    ("[profiles.x]\nprovider='s3'\nurl='memory://a'", "penstock://x/", "memory:// contradicts provider 's3'"),
    ("[profiles.x]\nurl='s5://a'", "penstock://x/", ":2: profiles.x.url: unknown scheme 's5'"),
    ("[profiles.x]\nurl='s3://k:s@b/'", "penstock://x/", "credentials and ports do not belong in a URL"),
    ("[profiles.x]\nurl='penstock://y/'", "penstock://x/", "is a profile itself: write extends = 'y'"),
    ("[profiles.x]\nurl='s3://bucket'\noptions.regoin='eu'", "penstock://x/", "'regoin': did you mean 'region'?"),
    ("[profiles.x]\nurl='s3://bucket'\nread.ahead_item=3", "penstock://x/", "did you mean 'ahead_items'?"),
    ("[profiles.x]\nurl='s3://bucket'\nwrite.part_bytes='1 MiB'", "penstock://x/", "must be at least 5242880 for S3"),
    ("[profiles.x]\nurl='memory://a'\noptions.endpoint='x'", "penstock://x/", "StoreOptions has no option 'endpoint'"),
    ("[profiles.x]\nurl='memory://a'\nextends='y'\n[profiles.y]\nextends='x'", "penstock://x/", "x -> y -> x"),
    ("[profiles.x]\nurl='memory://a'\ncache.size_byte=3", "penstock://x/", "did you mean 'size_bytes'?"),
    ("[profiles.x]\nurl='memory://a'", "penstock:///x", "is empty: write penstock://profile/key"),
    ("[profiles.x]\nurl='memory://a'", "penstock:/x/y", "neither a URL nor a plain path"),
    ("[profiles.x]\nurl='memory://a'", "penstock://a:b@x/y", "put them into its file"),
]


@pytest.mark.parametrize(("text", "url", "says"), MISUSES, ids=[str(number) for number in range(len(MISUSES))])
def test_a_misuse_names_the_place_and_the_remedy(toml, text, url, says):
    path = toml(text)
    with pytest.raises(Unusable) as refused:
        ps.open(url)
    assert says in str(refused.value)
    assert "a:b" not in str(refused.value)
    if ":2:" in says:
        assert str(path) in str(refused.value)


@pytest.mark.usefixtures("toml")
def test_without_a_file_the_places_are_named():
    with pytest.raises(ConfigError, match=r"no profile 'x': no penstock.toml found here, above, in ~/.config"):
        ps.open("penstock://x/y")


@pytest.mark.usefixtures("memory")
def test_a_url_of_one_profile_takes_no_other_s_options():
    assert not [*ps.list("penstock://data/", store="data")]
    with pytest.raises(ConfigError, match="leave out store='other'"):
        ps.open("penstock://data/x", store="other")
    with pytest.raises(ConfigError, match="no profile 'nope'"):
        ps.open("memory://x/y", store="nope")


SINKS = """
import multiprocessing, sys
import penstock as ps
from penstock.source import open_source

if __name__ == "__main__":
    ps.stat("penstock://train/key")
    source, key = open_source("penstock://train/key")
    for how in ("fork", "spawn"):
        child = multiprocessing.get_context(how).Process(target=source.head, args=(key,))
        child.start()
        child.join()
        assert child.exitcode == 0
"""


def test_sinks_of_a_profile_are_opened_with_its_store_and_once_in_each_process(tmp_path, monkeypatch):
    (tmp_path / "key").write_bytes(b"x")
    (tmp_path / "file.toml").write_text(
        f"[profiles.base]\nobserve = ['jsonl:events.jsonl']\n"
        f"[profiles.train]\nextends = 'base'\nurl = 'file://{tmp_path}/'\n"
        f"[profiles.other]\nobserve = 'jsonl:other.jsonl'\nurl = 'file://{tmp_path}/'\n"
    )
    monkeypatch.setenv("PENSTOCK_CONFIG", str(tmp_path / "file.toml"))
    result = python(SINKS)
    assert (result.returncode, result.stderr) == (0, "")
    lines = lines_of(tmp_path / "events.jsonl")
    assert [each["event"] for each in lines] == ["RequestStarted", "RequestEnded"] * 3
    assert len({each["pid"] for each in lines}) == 3
    assert not (tmp_path / "other.jsonl").exists()


def test_unopenable_sink_is_reported_once_and_requests_still_succeed(tmp_path, monkeypatch):
    (tmp_path / "key").write_bytes(b"x")
    (tmp_path / "file.toml").write_text(
        f"[profiles.train]\nurl = 'file://{tmp_path}/'\nobserve = ['jsonl:/no/such/folder/x', 'prometheus:none']\n"
    )
    monkeypatch.setenv("PENSTOCK_CONFIG", str(tmp_path / "file.toml"))
    result = python("import penstock as ps; print([ps.stat('penstock://train/key').size for _ in range(3)])")
    assert result.stdout == "[1, 1, 1]\n"
    assert result.stderr.count("No such file") == 1
    assert result.stderr.count("port must be a number") == 1


def test_a_projects_file_opens_no_sinks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_CONFIG", raising=False)
    (tmp_path / "penstock.toml").write_text(f"[profiles.p]\nurl = 'file://{tmp_path}/'\nobserve = 'log'\n")
    with pytest.raises(ConfigError, match=r"penstock.toml:3: profiles.p.observe: a project's file must not open sinks"):
        ps.stat("penstock://p/key")


# -- A driver below a prefix keeps every promise, sees nothing else, and has the verbs of the one it stands on --


class TestContractBelow(DriverContract):
    @pytest.fixture
    def store(self):
        return scope_driver(MemoryDriver(uuid.uuid4().hex), "some/base/", "penstock://below/"), Threads()


class TestContractAtTheRoot(DriverContract):
    @pytest.fixture
    def store(self):
        return scope_driver(MemoryDriver(uuid.uuid4().hex), "", "penstock://whole/"), Threads()


def test_keys_outside_the_prefix_are_hidden():
    memory, transport = MemoryDriver(uuid.uuid4().hex), Threads()
    whole, part = Trial(memory, transport), Trial(scope_driver(memory, "base/", "penstock://x/"), transport)
    for key in ("base/in", "base", "basement", "other/in"):
        whole.put(key, key.encode())
    part.put("new/one", b"new")
    assert part.keys() == ["in", "new/one"]
    assert part.get("in") == b"base/in"
    assert whole.get("base/new/one") == b"new"
    with pytest.raises(NotFound):
        part.get("basement")


def test_abilities_set_below_a_prefix_reach_the_underlying_driver():
    memory = MemoryDriver(uuid.uuid4().hex)
    part = scope_driver(memory, "base/", "penstock://x/")
    learned = contract.Abilities(tags=False)
    part.abilities = learned
    assert memory.abilities is part.abilities is learned
    assert part.url("a/b") == "penstock://x/a/b"


def test_every_verb_of_the_contract_is_known():
    # A prefix is not a bucket: ``Buckets`` stays missing below it.
    apart = (Driver, Head, Read, contract.Digest, contract.Buckets)
    verbs = {
        each
        for _, each in inspect.getmembers(contract, inspect.isclass)
        if Protocol in each.__bases__ and each not in apart
    }
    assert verbs == set(_VERBS), "stores/profiles/store.py has to translate the keys of a new verb"


def test_a_verb_that_is_missing_stays_missing():
    part = scope_driver(ReadOnly(MemoryDriver(uuid.uuid4().hex), "x"), "base/", "penstock://x/")
    assert supports(part, List)
    assert not any(supports(part, verb) for verb in (Put, Delete, Multipart))
