"""Pages of Azure's listings are in the order of bytes, without folders, and continue where the marker says."""

import random
from dataclasses import replace
from itertools import count

import pytest

from penstock.engine.listing.listing import Listing
from penstock.errors import Damaged, Unsupported
from penstock.stores.azure.listing import Blobs, Walk, is_folder, page_of, read_blobs, read_uncommitted, utf_16
from penstock.stores.http.answers import parse_xml
from penstock.stores.http.listing import ListingWalks
from penstock.values import ObjectMeta


def _blob(name, size=1, etag="0x1", more="", metadata="", attributes=""):
    properties = f"<Content-Length>{size}</Content-Length><Etag>{etag}</Etag>{more}"
    return f"<Blob><Name{attributes}>{name}</Name><Properties>{properties}</Properties>{metadata}</Blob>"


def _listing(*entries, marker=""):
    body = (
        f"<EnumerationResults><Blobs>{''.join(entries)}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>"
    )
    return parse_xml(body.encode())


def _keys(page):
    return [entry.key for entry in page.entries]


def test_a_blob_has_a_name_a_size_a_version_and_a_date():
    date = "<Last-Modified>Sun, 06 Nov 1994 08:49:37 GMT</Last-Modified>"
    (entry,) = read_blobs(_listing(_blob("a", 5, '"0x8D"', date))).entries
    assert (entry.key, entry.size, entry.etag, entry.modified) == ("a", 5, "0x8D", 784111777.0)


def test_folder_entries_are_excluded_from_blob_listing():
    """By the type that accounts with a hierarchical namespace give, or by the metadata that Hadoop writes."""
    hadoop = "<Metadata><Hdi_IsFolder>True</Hdi_IsFolder></Metadata>"
    page = _listing(
        _blob("a", 0, more="<ResourceType>directory</ResourceType>"),
        _blob("a/b", more="<ResourceType>file</ResourceType>"),
        _blob("c", 0, metadata=hadoop),
        _blob("c/d", metadata="<Metadata><hdi_isfolder>false</hdi_isfolder></Metadata>"),
    )
    assert _keys(read_blobs(page)) == ["a/b", "c/d"]
    assert is_folder({"hdi_isfolder": "TRUE"}, "")
    assert not is_folder({}, "file")


def test_entries_before_the_start_key_are_dropped_across_pages():
    page = page_of(read_blobs(_listing(_blob("a"), _blob("b"), marker="m1")), "c")
    assert (_keys(page), page.token) == ([], "m1\0c")
    page = page_of(read_blobs(_listing(_blob("c"), _blob("d"), marker="m2")), "c")
    assert (_keys(page), page.token) == (["d"], "m2")
    page = page_of(read_blobs(_listing(_blob("a"))), "c")
    assert (_keys(page), page.token) == ([], "")
    prefixes = "".join(f"<BlobPrefix><Name>{name}</Name></BlobPrefix>" for name in ("a/", "d/"))
    assert page_of(read_blobs(_listing(prefixes)), "c").prefixes == ("d/",)


def test_names_that_xml_cannot_hold_come_encoded():
    assert _keys(read_blobs(_listing(_blob("a%EF%BF%BEb%25", attributes=' Encoded="true"')))) == ["a\ufffeb%"]
    assert _keys(read_blobs(_listing(_blob("a%25")))) == ["a%25"]


def test_the_order_of_utf_16_is_mended(seed):
    names = ["a.x", "a/x", "Z", "é", "\uffee", "🐶", "\ue000/1", "a/b/c"]
    random.Random(seed).shuffle(names)
    listed = sorted(names, key=lambda name: name.encode("utf-16-be"))
    page = read_blobs(_listing(*map(_blob, listed)))
    assert _keys(page) == sorted(names, key=str.encode) != listed


def test_a_hierarchical_namespace_is_known_by_its_types_and_sorted():
    kind = "<ResourceType>{}</ResourceType>".format
    listed = [_blob("a", 0, more=kind("directory")), _blob("a/1", more=kind("file")), _blob("a-b", more=kind("file"))]
    found = read_blobs(_listing(*listed, marker="m"))
    assert (_keys(found), found.hierarchical, found.folders, found.last) == (["a-b", "a/1"], True, True, "a/1")
    groups = [
        f"<BlobPrefix><Name>{name}/</Name><Properties>{kind('directory')}</Properties></BlobPrefix>" for name in "ab"
    ]
    found = read_blobs(_listing(*groups))
    assert (found.prefixes, found.hierarchical, found.folders, found.last) == (["a/", "b/"], True, False, "b")
    assert not read_blobs(_listing(_blob("a"))).hierarchical


def test_its_order_is_refused_of_a_service_that_does_not_say_so():
    for entries in (
        map(_blob, ("a/1", "a-b/2")),
        (f"<BlobPrefix><Name>{name}</Name></BlobPrefix>" for name in ("a/", "a-b/")),
    ):
        with pytest.raises(Unsupported, match="hierarchical namespace"):
            read_blobs(_listing(*entries))
    assert _keys(read_blobs(_listing(*map(_blob, ("a/1", "b/2", "b/3/4"))))) == ["a/1", "b/2", "b/3/4"]


@pytest.mark.parametrize(
    "body",
    [
        "<EnumerationResults/>",
        "<EnumerationResults><Blobs><Blob/></Blobs></EnumerationResults>",
        "<EnumerationResults><Blobs><Blob><Name>a</Name></Blob></Blobs></EnumerationResults>",
        f"<EnumerationResults><Blobs>{_blob('a', 'x')}</Blobs></EnumerationResults>",
        f"<EnumerationResults><Blobs>{_blob('b')}{_blob('c')}{_blob('a')}</Blobs></EnumerationResults>",
        f"<EnumerationResults><Blobs>{_blob('a')}{_blob('a')}</Blobs></EnumerationResults>",
    ],
)
def test_malformed_blob_listing_raises_damaged(body):
    with pytest.raises(Damaged):
        read_blobs(parse_xml(body.encode()))


def test_uncommitted_blobs_have_no_type():
    committed = _blob("done", more="<Content-Type>text/plain</Content-Type>")
    page = read_uncommitted(_listing(committed, _blob("begun"), marker="m"))
    assert ([(each.key, each.begun) for each in page.entries], page.token) == ([("begun", None)], "m")


@pytest.mark.parametrize("name", ["%ff", "a%C3", "%ED%A0%80"])
def test_an_encoded_name_that_is_not_utf8_is_damaged(name):
    with pytest.raises(Damaged, match="not UTF-8"):
        read_blobs(_listing(_blob(name, attributes=' Encoded="true"')))


# -- A walk through folders tells what a sorted list of keys holds, whatever their names, pages and beginnings are --


# What stands before, at and after a "/" in the order of bytes, and beyond ASCII.
ADVERSARIAL = ("a", "a!", "a-", "a-b", "a.txt", "a0", "aa", "A", " a", "z", "é", "\uffee", "🐶", "日本")


class Account:
    """Files and the folders they lie in, listed part by part, each in the order of UTF-16, as the service does it."""

    def __init__(self, keys, page_keys, empty=()):
        self.keys, self.page_keys = set(keys), page_keys
        parts = [key.split("/") for key in (*keys, *(f"{folder}/" for folder in empty))]
        self.folders = {"/".join(each[:depth]) for each in parts for depth in range(1, len(each))}
        self.names = sorted(self.keys | self.folders, key=_parts)
        self.requests = 0

    def answer(self, query):
        self.requests += 1
        prefix, flat, marker = query["prefix"], query["delimiter"] == "/", query["marker"]
        names = [each for each in self.names if each.startswith(prefix) and not (flat and "/" in each[len(prefix) :])]
        names = [each for each in names if not marker or _parts(each) > _parts(marker)]
        page = names[: self.page_keys]
        files = sorted((each for each in page if each in self.keys), key=str.encode)
        folders = [each for each in page if each in self.folders]
        more = page[-1] if len(names) > len(page) else ""
        prefixes = [f"{each}/" for each in folders] if flat else []
        entries = [ObjectMeta(each, 1) for each in files]
        return _answer(entries, prefixes, more, max(page, key=utf_16, default=""), folders=bool(folders) and not flat)


def _answer(entries, prefixes, marker, last, *, folders):
    return Blobs(entries, prefixes, marker, last, hierarchical=True, folders=folders)


def _parts(name):
    return [*map(utf_16, name.split("/"))]


def _listed(account, walk, forget_every=0):
    """Follow a walk to its end, each page held to what was asked for; returns keys and prefixes."""
    listing = Listing(walk.prefix, walk.after, "/" if walk.flat else "")
    walks, keys, prefixes = ListingWalks(Walk.begin), [], []
    for number in count(1):
        page, following = walk.enter(account.answer(walk.query))
        token = walks.keep(following, following.after if following else "")
        listing.take(replace(page, token=token))
        keys += [each.key for each in page.entries]
        prefixes += page.prefixes
        if not token:
            break
        if forget_every and number % forget_every == 0 and (page.entries or page.prefixes):
            walks._walks.clear()
        walk = walks.find(token, walk.prefix, flat=walk.flat)
    return keys, prefixes


def _some_keys(draw):
    keys = {"/".join(draw.choice(ADVERSARIAL) for _ in range(draw.randint(1, 4))) for _ in range(draw.randint(1, 80))}
    return {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}  # no file is a folder


def _grouped(keys, prefix):
    groups = {prefix + key[len(prefix) :].partition("/")[0] + "/" for key in keys if "/" in key[len(prefix) :]}
    return [key for key in keys if "/" not in key[len(prefix) :]], sorted(groups, key=str.encode)


@pytest.mark.parametrize("trial", range(25))
def test_walk_yields_the_same_keys_as_a_sorted_list(trial, seed):
    draw = random.Random(seed * 1000 + trial)
    keys = _some_keys(draw)
    account = Account(keys, draw.choice((1, 2, 3, 7, 50, 5000)))
    some = draw.choice(sorted(keys))
    for prefix in ("", "a", "a/", "a-", "zz", some, some[: draw.randint(0, len(some))]):
        if any(prefix.startswith(f"{key}/") for key in keys):
            continue  # the service refuses what runs through a file's name
        matching = sorted((key for key in keys if key.startswith(prefix)), key=str.encode)
        assert _listed(account, Walk.begin(prefix)) == (matching, [])
        assert _listed(account, Walk.begin(prefix), forget_every=draw.choice((1, 2, 5))) == (matching, [])
        assert _listed(account, Walk.begin(prefix, flat=True)) == _grouped(matching, prefix)
        assert _listed(account, Walk.begin(prefix, flat=True), forget_every=1) == _grouped(matching, prefix)
        for after in (draw.choice(matching or ["q"]), f"{prefix}a", f"{prefix}a/", f"{prefix}a-b/é"):
            beyond = [key for key in matching if key.encode() > after.encode()]
            assert _listed(account, Walk.begin(prefix, after)) == (beyond, [])


def test_pending_names_are_listed_once_after_folder_listing_restarts():
    account = Account({"🐶/a!", "🐶/🐶/\uffee"}, 1)
    assert _listed(account, Walk.begin("")) == (["🐶/a!", "🐶/🐶/\uffee"], [])


def test_small_tree_takes_one_request_and_flat_folder_one_per_page():
    account = Account({f"{folder}/{number}" for folder in ("a", "a-b", "c/d/e") for number in range(5)}, 100)
    _listed(account, Walk.begin(""))
    assert account.requests == 1
    account = Account({f"a/{number:03}" for number in range(95)}, 10)
    _listed(account, Walk.begin("a/"))
    assert account.requests == 10


def test_a_listing_that_begins_late_looks_into_no_folder_before():
    account = Account({f"{folder:02}/{number}" for folder in range(50) for number in range(10)}, 100)
    keys, _ = _listed(account, Walk.begin("", "48/5"))
    assert keys == [*(f"48/{number}" for number in range(6, 10)), *(f"49/{number}" for number in range(10))]
    assert account.requests == 4  # all, by folders, and two of them


def test_thousands_of_empty_folders_do_not_end_a_listing():
    account = Account({"z/1"}, 10, [f"a{number:05}" for number in range(1200)])
    assert _listed(account, Walk.begin("")) == (["z/1"], [])


def _blobs(*names, marker="", prefixes=(), folders=False):
    entries = [ObjectMeta(name, 1) for name in names]
    last = max((*names, *(each[:-1] for each in prefixes)), default="")
    return _answer(entries, list(prefixes), marker, last, folders=folders)


def _follow(*answers, prefix=""):
    walk = Walk.begin(prefix)
    for answer in answers:
        assert walk is not None
        _, walk = walk.enter(answer)


def test_a_server_that_leads_astray_is_damaged():
    mixed = _blobs("b", marker="m", folders=True)
    with pytest.raises(Damaged, match="astray"):
        _follow(_blobs("x"), prefix="a/")
    with pytest.raises(Damaged, match="astray"):
        _follow(mixed, _blobs(prefixes=["a/"], marker="m"), _blobs(prefixes=["b/"]), _blobs("x"))
    with pytest.raises(Damaged, match="astray"):
        _follow(_blobs("a/b", marker="m", folders=True), _blobs(prefixes=["a/"]), prefix="a/")
    with pytest.raises(Damaged, match="does not advance"):
        _follow(_blobs("a", marker="1"), _blobs("a", marker="2"))


def test_a_folder_in_itself_ends():
    def loop():
        walk = Walk.begin("")
        while walk is not None:
            prefix = walk.query["prefix"]
            last = f"{prefix}loop"
            level = _answer([], [f"{last}/"], "", last, folders=False)
            _, walk = walk.enter(level if walk.query["delimiter"] else _answer([], [], "m", last, folders=True))

    with pytest.raises(Damaged, match="characters"):
        loop()
