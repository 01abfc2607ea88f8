"""What was passed as options goes to workers, and into nothing that may be a file: every public object, every way."""

from __future__ import annotations

import copy
import io
import json
import pickle
import pprint
import traceback
from dataclasses import fields
from multiprocessing.reduction import ForkingPickler

import pytest
import torch

import penstock as ps
from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.errors import NotFound, Unusable
from penstock.events import subscribe
from penstock.interop.fsspec import PenstockFileSystem
from penstock.source import open_source
from penstock.stores.profiles.effective import check_files, profiles, settings
from tests.options.kinds import KINDS

CANARY = "xyzzy-never-to-be-seen"
STORE = ps.S3Options(
    access_key=f"{CANARY}-key",
    secret_key=f"{CANARY}-secret",
    session_token=f"{CANARY}-token",
    transport=ps.TransportOptions(proxy=f"http://user:{CANARY}@proxy"),
)
WAYS = {
    **{f"pickle {protocol}": lambda it, p=protocol: pickle.dumps(it, p) for protocol in range(2, 6)},
    "torch.save": lambda it: _saved(torch.save, {"state": [it]}),
    "ps.save": lambda it: ps.save({"state": [it]}, "memory://test-secrets/a-way") or _stored(),
    "repr": repr,
    "str": str,
    "format": lambda it: f"{it}",
    "pprint": pprint.pformat,
    "its variables": lambda it: str(vars(it)),
    "JSON": lambda it: json.dumps(it, default=repr),
    "JSON of its variables": lambda it: json.dumps(it, default=vars),
    "a copy": lambda it: pprint.pformat(copy.copy(it)),
    "a deep copy": lambda it: pprint.pformat(copy.deepcopy(it)),
    "a pickled copy": lambda it: pickle.dumps(copy.deepcopy(copy.copy(it))),
}


def _saved(save, it):
    file = io.BytesIO()
    save(it, file)
    return file.getvalue()


def _stored():
    with ps.open("memory://test-secrets/a-way") as file:
        return file.read()


def _things():
    """Make one of each public kind of object that was given the options, or what came of them."""
    url = "memory://test-secrets/"
    ps.save({"a": torch.arange(3)}, f"{url}a.pt", store=STORE)
    ps.save_safetensors({"a": torch.arange(3)}, f"{url}a.safetensors", overwrite=True, store=STORE)
    yield from (STORE, STORE.transport, open_source("s3://bucket/key", STORE)[0], ps.Checkpoint(STORE))
    events = []
    leave = subscribe(events.append)
    lazy, loaded = ps.load(f"{url}a.pt", lazy=True, store=STORE)["a"], ps.load(f"{url}a.pt", store=STORE)
    leave()  # before the first yield: some tests take one thing only
    yield from (lazy, loaded, events)
    opened = ps.open_safetensors(f"{url}a.safetensors", store=STORE)
    yield from (opened, opened.get_slice("a"), ps.open(f"{url}a.pt", store=STORE), ps.stat(f"{url}a.pt", store=STORE))
    for kind in (ps.MapDataset, ps.IterableDataset):
        dataset = kind.from_objects([f"{url}a.pt", f"{url}a.safetensors"], store=STORE)
        loader = ps.DataLoader(dataset, batch_size=1, collate_fn=list)
        yield from (dataset, dataset.catalog, loader, loader.state_dict(), next(iter(loader)))
    manager = ps.CheckpointManager(f"{url}run/", store=STORE)
    yield from (
        manager,
        ps.AsyncCheckpointer(manager),
        StorageWriter(url, store=STORE),
        StorageReader(url, store=STORE),
    )
    yield PenstockFileSystem(STORE)
    try:
        ps.load("memory://test-secrets/none", store=STORE)
    except NotFound as error:
        yield error


def check_hidden(it):
    """Send an object all ways, and see that what comes out, if anything does, has no secret in it."""
    for name, way in WAYS.items():
        try:
            made = way(it)
        except Exception:  # noqa: BLE001  that it cannot go this way is right, whatever says so
            made = traceback.format_exc()
        made = made if isinstance(made, str) else made.decode("latin-1")
        assert CANARY not in made, (type(it), name)


@pytest.mark.filterwarnings("ignore")
def test_no_way_into_a_file_carries_a_secret():
    things = list(_things())
    assert len({type(it) for it in things}) > 15
    for it in things:
        check_hidden(it)


def test_unsaveable_state_raises_with_remedy_and_keeps_existing_checkpoint(tmp_path):
    ps.save({"a": torch.arange(3)}, f"{tmp_path}/a.pt")
    dataset = ps.MapDataset.from_objects(["s3://bucket/key"], store=STORE)
    lazy = ps.load(f"{tmp_path}/a.pt", lazy=True, store=STORE)
    for state, words in (({"data": dataset}, "profile="), (lazy, r"load\(\) first")):
        for save in (torch.save, ps.save):
            with pytest.raises(Unusable, match=words):
                save(state, tmp_path / "a.pt" if save is ps.save else io.BytesIO())
        with pytest.raises(Unusable, match=words):
            ps.CheckpointManager(tmp_path / "run").save(1, state)
    assert ps.load(f"{tmp_path}/a.pt")["a"].tolist() == [0, 1, 2]
    assert ps.CheckpointManager(tmp_path / "run").latest() is None


def test_workers_get_all_of_it():
    for it in (
        STORE,
        ps.MapDataset.from_objects(["s3://bucket/key"], store=STORE),
        StorageWriter("s3://bucket/", store=STORE),
    ):
        assert CANARY.encode() in bytes(ForkingPickler.dumps(it))
    assert pickle.loads(ForkingPickler.dumps(STORE)) == STORE
    lazy = next(each for each in _things() if type(each).__name__ == "LazyTensor")
    assert torch.equal(pickle.loads(ForkingPickler.dumps(lazy)).load(), torch.arange(3))


def test_options_without_a_secret_go_anywhere():
    for options in (
        ps.S3Options(region="r", profile="p"),
        ps.TransportOptions(proxy="http://proxy:1"),
        ps.ReadOptions(),
    ):
        assert pickle.loads(pickle.dumps(options)) == options
        assert copy.deepcopy(options) == options


class Telling:
    """A source of credentials that shows them wherever it is shown."""

    def __init__(self):
        self.secret = CANARY

    def __call__(self):
        return self.secret

    def __repr__(self):
        return f"<{self.secret}>"


class TellingStore(Telling):
    """A foreign store that shows its credentials wherever it is shown."""

    get = head = list = Telling.__call__


# By the type of a field, or by its name where a value needs a form: a field of another type fails the walk.
SECRETS = {
    "str": CANARY,
    "str | None": CANARY,
    "str | tuple[str, ...] | None": ("program", CANARY),
    "Mapping[str, str] | None": {"X-Secret": CANARY},
    "Mapping[str, object] | None": {"password": CANARY},
    "Callable[[], object] | None": Telling(),
    "object": Telling(),
    "store": TellingStore(),
    "proxy": f"http://user:{CANARY}@proxy",
}
NEEDED = {
    "access_key": ("secret_key",),
    "secret_key": ("access_key",),
    "session_token": ("access_key", "secret_key"),
    "security_token": ("access_key", "secret_key"),
    "username": ("password",),
    "password": ("username",),
}
URLS = {
    ps.S3Options: "s3://bucket",
    ps.GCSOptions: "gs://bucket",
    ps.AzureOptions: "az://container",
    ps.OSSOptions: "oss://bucket",
    ps.HFOptions: "hf://datasets/org/name",
    ps.HTTPOptions: "https://host",
    ps.FsspecOptions: "fsspec+memory://bucket",
    ps.ObspecOptions: "obspec://bucket",
}
NO_SECRET = ("int", "float", "bool", "Options")  # what a type without PUBLIC names that can be none


def _private_fields():
    for kind in KINDS:
        for each in fields(kind):
            words = str(each.type).removesuffix(" | None")
            if not each.metadata.get("public") and not words.endswith(NO_SECRET):
                yield pytest.param(kind, each, id=f"{kind.__name__}.{each.name}")


PRIVATE = list(_private_fields())


def with_secret(field):
    value = SECRETS.get(field.name) or SECRETS[str(field.type)]
    return {field.name: value, **dict.fromkeys(NEEDED.get(field.name, ()), f"{CANARY}-too")}


# No file can name an object.
WRITABLE = [each for each in PRIVATE if not any(map(callable, with_secret(each.values[1]).values()))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "field"), PRIVATE)
def test_secret_in_any_private_field_is_shown_and_saved_nowhere(monkeypatch, kind, field):
    monkeypatch.setenv("OSS_REGION", "cn-hangzhou")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    made = kind(**with_secret(field))
    if isinstance(made, ps.StoreOptions):
        check_hidden(made)
        if kind in URLS:
            try:
                check_hidden(ps.MapDataset.from_objects([f"{URLS[kind]}/key"], store=made))
            except ps.PenstockError as error:  # a key that is not base64, say
                check_hidden(error)
    else:
        assert CANARY not in repr(made)
        part = next(each.name for each in fields(ps.S3Options) if str(each.type).startswith(kind.__name__))
        check_hidden(ps.S3Options(**{part: made}))
    # The text of an error about the wrong kind of value, and of a name that is none, quotes no value either.
    for wrong in ({field.name: [CANARY]}, {field.name: CANARY.encode()}, {f"{field.name}s": CANARY}, {}):
        try:
            kind(**{**with_secret(field), **wrong})
        except Exception:  # noqa: BLE001  that it is refused is right, whatever says so
            assert CANARY not in traceback.format_exc().replace(str(wrong), "")


@pytest.mark.parametrize(("kind", "field"), WRITABLE)
def test_config_shows_no_secret_of_any_private_field(tmp_path, monkeypatch, kind, field):
    given = with_secret(field)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "penstock").mkdir()
    path = tmp_path / "penstock/penstock.toml"
    table = "transport" if kind is ps.TransportOptions else "options"
    lines = [f"{table}.{name} = {_toml(value)}" for name, value in given.items()]
    path.write_text("\n".join(["[profiles.data]", f"url = '{URLS.get(kind, 's3://bucket')}'", *lines, ""]))
    path.chmod(0o600)
    try:
        shown = [*settings("data"), *profiles(), *check_files(None)[1]]
    except ps.PenstockError as error:
        shown = error
    assert CANARY not in f"{shown}"


def _toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {each!r}" for name, each in value.items()) + "}"
    return repr(list(value)) if isinstance(value, tuple) else repr(value)


@pytest.mark.parametrize("place", [f"https://host/k?X-Amz-Signature={CANARY}", f"https://host/k?token={CANARY}"])
def test_config_shows_no_signature_of_a_url(place):
    assert CANARY not in str(settings(place))


def test_config_shows_no_password_of_an_endpoint(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://user:{CANARY}@host")
    try:
        shown = settings("s3://bucket/")
    except ps.PenstockError as error:
        shown = error
    assert CANARY not in f"{shown}"
