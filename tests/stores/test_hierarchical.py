"""An account with a hierarchical namespace is used as any other: trees are listed, trained from, copied, removed."""

import pytest

import penstock as ps
from penstock.cli import main
from penstock.errors import NotFound, PenstockError
from penstock.stores.azure.driver import AzureDriver

# Part by part, all of ``a/`` comes before ``a!`` and ``a-b``; in the order of bytes it comes after them.
KEYS = (
    "a!",
    "a!x/1",
    "a-b/2",
    "a.txt",
    "a/b",
    "a/b-/1",
    "a/b!/1",
    "a/c/d/e",
    "a0",
    "A/1",
    "é/1",
    "é-/1",
    "\uffee",
    "🐶/1",
)
ORDERED = sorted(KEYS, key=str.encode)
pytestmark = pytest.mark.parametrize("place", ["azure-hns"], indirect=True)


@pytest.fixture(params=[2, 5000])
def tree(place, request, monkeypatch):
    """The URL of a tree, on a server that tells few names at once, or all."""
    monkeypatch.setattr(AzureDriver, "page_keys", property(lambda _: request.param, lambda *_: None))
    for key in KEYS:
        place.put(f"tree/{key}", key.encode())
    return f"{place.url}tree/"


@pytest.fixture
def command(place, monkeypatch):
    """Return a function that runs a command in this process; it must succeed."""
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)

    def run(*words):
        monkeypatch.setattr("sys.argv", ["penstock", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (0, None)

    return run


def _keys(url, place):
    assert url.startswith(place.url)
    return [each.key.removeprefix("tree/") for each in ps.list(url, store=place.store)]


def test_listings_are_in_the_order_of_bytes(tree, place):
    assert _keys(tree, place) == ORDERED
    for prefix in ("a", "a/", "a/b", "a/b-", "é", "none"):
        assert _keys(tree + prefix, place) == [key for key in ORDERED if key.startswith(prefix)]


def test_a_file_in_the_middle_of_a_prefix_is_refused_not_listed_as_nothing(tree, place):
    """As the service does it: which error that is, its manual does not say."""
    with pytest.raises(PenstockError):
        _keys(f"{tree}a.txt/b", place)


def test_folder_is_treated_as_missing_object(tree, place):
    with pytest.raises(NotFound, match="this is a folder"):
        ps.stat(f"{tree}a", store=place.store)
    ps.delete(f"{tree}a", store=place.store)
    assert _keys(tree, place) == ORDERED


def test_datasets_are_made_of_it(tree, place):
    samples = ps.MapDataset.from_prefix(tree, store=place.store, transform=lambda sample: bytes(sample.data).decode())
    assert [samples[at] for at in range(len(samples))] == ORDERED
    stream = ps.IterableDataset.from_prefix(f"{tree}a/", store=place.store, transform=lambda sample: sample.key)
    assert [key.removeprefix("tree/a/") for key in stream] == ["b", "b!/1", "b-/1", "c/d/e"]
    found = ps.find(tree, store=place.store, name="1")
    assert [each.key.removeprefix("tree/") for each in found] == [key for key in ORDERED if key.endswith("/1")]


def test_commands_list_copy_synchronise_and_remove_it(tree, place, command, tmp_path, capsys):
    command("ls", tree)
    lines = [line.split()[-1].removeprefix(tree) for line in capsys.readouterr().out.splitlines()]
    assert lines == ORDERED
    command("cp", "-r", tree, f"{place.url}copy/")
    command("sync", tree, f"{tmp_path}/here/")
    command("sync", f"{tmp_path}/here/", f"{place.url}back/")
    for part in ("copy", "back"):
        assert [
            each.key.removeprefix(f"{part}/") for each in ps.list(f"{place.url}{part}/", store=place.store)
        ] == ORDERED
    before = len(place.server.seen("put"))
    command("sync", f"{tmp_path}/here/", f"{place.url}back/")
    assert len(place.server.seen("put")) == before, "nothing was left to send"
    command("rm", "-r", "--yes", f"{tree}a/")
    assert _keys(tree, place) == [key for key in ORDERED if not key.startswith("a/")]
    command("rm", "-r", "--yes", tree)
    assert _keys(tree, place) == [], "emptied folders are no objects"
