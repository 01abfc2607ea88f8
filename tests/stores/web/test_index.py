"""Index pages: only what they name in their own directory, and no size that is not exact."""

import json
import random
import time
from contextlib import suppress
from itertools import count
from urllib.parse import unquote

import pytest

from penstock.engine.listing.listing import Listing
from penstock.errors import Damaged
from penstock.stores.http.listing import ListingWalks
from penstock.stores.web.index import IndexEntry, Walk, read_index
from penstock.values import UNKNOWN_SIZE

URL = "https://h/a%20b/"
NGINX = """<html>
<head><title>Index of /a b/</title></head>
<body>
<h1>Index of /a b/</h1><hr><pre><a href="../">../</a>
<a href="sub%20dir/">sub dir/</a>                                           22-Nov-2026 10:58                   -
<a href="1%2B1%3D2.txt">1+1=2.txt</a>                                       22-Nov-2026 10:58                1234
<a href="{long}">{short}..&gt;</a> 22-Nov-2026 10:58                  7K
<a href="%26lt%3B.txt">&amp;lt;.txt</a>                                     22-Nov-2026 10:58                   0
</pre><hr></body>
</html>
"""
LONG = "x" * 60
APACHE = """<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 3.2 Final//EN">
<html>
 <head>
  <title>Index of /a b</title>
 </head>
 <body>
<h1>Index of /a b</h1>
  <table>
<tr><th><img src="/icons/blank.gif" alt="[ICO]"></th><th><a href="?C=N;O=D">Name</a></th>
<th><a href="?C=M;O=A">Last modified</a></th></tr>
<tr><td><img src="/icons/back.gif" alt="[PARENTDIR]"></td><td><a href="/">Parent Directory</a>       </td></tr>
<tr><td valign="top"><a href="sub/"><img src="/icons/folder.gif" alt="[DIR]"></a></td><td><a href="sub/">sub/</a></td>
<td align="right">2026-11-22 10:58  </td><td align="right">  - </td></tr>
<tr><td><img src="/icons/text.gif" alt="[TXT]"></td><td><a href="./a:b.txt">a:b.txt</a></td>
<td align="right">2026-11-22 10:58  </td><td align="right">1.2K</td></tr>
<tr><td><img src="/icons/text.gif" alt="[TXT]"></td><td><a href="plus+plus">plus+plus</a></td>
<td align="right">2026-11-22 10:58  </td><td align="right">123 </td></tr>
</table>
<p>See <a href="README">the notes</a>, <a href="https://other/file.txt">file.txt</a>,
<a href="sub/deep.txt">deep.txt</a>.</p>
</body></html>
"""
PYTHON = """<!DOCTYPE HTML>
<html lang="en"><head><meta charset="utf-8"><title>Directory listing for /a b/</title></head>
<body><h1>Directory listing for /a b/</h1><hr><ul>
<li><a href="b%20c.txt">b c.txt</a></li>
<li><a href="link">link@</a></li>
<li><a href="sub/">sub/</a></li>
</ul><hr></body></html>
"""


def _read(page, kind="text/html; charset=utf-8", url=URL):
    return read_index(page.encode(), kind, url)


def test_nginx_index_sizes_are_exact_or_unknown():
    page = NGINX.replace("{long}", LONG).replace("{short}", LONG[:47])
    assert _read(page) == [
        IndexEntry("sub dir/"),
        IndexEntry("1%2B1=2.txt", 1234),
        IndexEntry(LONG, UNKNOWN_SIZE),
        IndexEntry("&lt%3B.txt", 0),
    ]


def test_apache_index_sizes_are_unknown_and_text_links_are_ignored():
    assert _read(APACHE) == [IndexEntry("sub/"), IndexEntry("a:b.txt"), IndexEntry("plus+plus")]


def test_python_server_index_entries_have_unknown_size():
    assert _read(PYTHON) == [IndexEntry("b c.txt"), IndexEntry("link"), IndexEntry("sub/")]


@pytest.mark.parametrize(
    "href",
    [
        *("../x", "/x", "/a%20b/../x", "//other/a%20b/x", "http://h/a%20b/x", "https://h:444/a%20b/x", "x?y=1", "x#y"),
        *("sub/x", "%2e%2e", "%2E", "..%2fx/y", "javascript:x", "", "https://[", "x/../y/z"),
    ],
)
def test_link_outside_the_directory_is_ignored(href):
    text = href.rstrip("/").rpartition("/")[2]
    found = _read(f'<title>Index of /</title><a href="{href}">{text}</a></html>')
    assert found == []


def test_an_absolute_link_into_the_directory_is_an_entry_in_any_spelling():
    page = '<title>Index of /</title><a href="/a b/x">x</a><a href="https://h/%61%20b/y">y</a></html>'
    assert _read(page) == [IndexEntry("x"), IndexEntry("y")]


def test_a_name_that_stands_twice_counts_once():
    assert _read('<title>Index of /</title><a href="x">x</a><a href="./x">x</a></html>') == [IndexEntry("x")]


@pytest.mark.parametrize("page", ["<title>Welcome</title><a href='x'>x</a></html>", "plain text", "", "<html></html>"])
def test_page_without_index_format_returns_none(page):
    assert _read(page) is None


def test_a_page_that_is_cut_short_is_damaged():
    with pytest.raises(Damaged, match="truncated"):
        _read("<html><title>Index of /</title><a href='x'>x</a>")


def test_a_size_that_no_file_has_is_unknown():
    line = '<title>Index of /</title><a href="x">x</a> 22-Nov-2026 10:58 9999999999999999999\n</html>'
    assert _read(line) == [IndexEntry("x")]


def test_json_index_yields_names_with_valid_sizes_and_times():
    rows = [
        {"name": "sub", "type": "directory", "mtime": "Sun, 22 Nov 2026 10:58:00 GMT"},
        {"name": "100% ü?.txt", "type": "file", "mtime": "Sun, 22 Nov 2026 10:58:00 GMT", "size": 7},
        {"name": "socket", "type": "other", "mtime": "Sun, 22 Nov 2026 10:58:00 GMT"},
        {"name": "odd", "type": "file", "mtime": 7, "size": True},
    ]
    assert _read(json.dumps(rows), "application/json") == [
        IndexEntry("sub/"),
        IndexEntry("100%25 ü%3F.txt", 7, 1795345080.0),
        IndexEntry("odd"),
    ]


@pytest.mark.parametrize("rows", ['{"a": 1}', "[1]", "7"])
def test_json_of_unexpected_shape_returns_none(rows):
    assert _read(rows, "application/json") is None


@pytest.mark.parametrize("rows", ["[", '[{"name": "../x", "type": "file"}]', '[{"name": 7}]', '[{"name": ".."}]', ""])
def test_odd_json_is_damaged(rows):
    with pytest.raises(Damaged):
        _read(rows, "application/json")


def test_non_utf8_name_bytes_are_kept_percent_encoded():
    page = b'<title>Index of /</title><a href="%FFx">\xffx</a></html>'
    assert read_index(page, "text/html", URL) == [IndexEntry("%FFx")]
    assert read_index(b'[{"name": "\xffx", "type": "file", "size": 1}]', "application/json", URL) == [
        IndexEntry("%FFx", 1)
    ]


# Apache 2.4.68 and lighttpd 1.4.69 of Debian 12, over the same directory: what they wrote, without icons and scripts.
APACHE_TABLE = """<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.01//EN" "http://www.w3.org/TR/html4/strict.dtd">
<html>
 <head>
  <title>Index of /debian</title>
 </head>
 <body>
<h1>Index of /debian</h1>
  <table>
   <tr><th><a href="?C=N;O=D">Name</a></th><th><a href="?C=M;O=A">Last modified</a></th></tr>
<tr><td valign="top">[PARENTDIR]</td><td><a href="/">Parent Directory</a></td><td align="right">  - </td></tr>
<tr><td><a href="%c3%bc&amp;%3cq%3e.txt">ü&amp;&lt;q&gt;.txt</a></td><td>2026-11-22 15:13  </td><td>  1 </td></tr>
<tr><td><a href="b%20c.txt">b c.txt</a></td><td align="right">2026-11-22 15:13  </td><td align="right">  2 </td></tr>
<tr><td><a href="big.bin">big.bin</a></td><td align="right">2026-11-22 15:13  </td><td align="right">121K</td></tr>
<tr><td><a href="dir/">dir/</a></td><td align="right">2026-11-22 15:13  </td><td align="right">  - </td></tr>
<tr><td><a href="per%2525cent">per%25cent</a></td><td>2026-11-22 15:13  </td><td>  1 </td></tr>
<tr><td><a href="plus+hash%23q%3fx">plus+hash#q?x</a></td><td align="right">2026-11-22 15:13  </td><td>  1 </td></tr>
<tr><td><a href="quo%22te.txt">quo&quot;te.txt</a></td><td align="right">2026-11-22 15:13  </td><td>  1 </td></tr>
<tr><td><a href="zz;semi=1">zz;semi=1</a></td><td align="right">2026-11-22 15:13  </td><td align="right">  1 </td></tr>
   <tr><th colspan="5"><hr></th></tr>
</table>
</body></html>
"""
LIGHTTPD = """<!DOCTYPE html>
<html>
<head>
<title>Index of /debian/</title>
</head>
<body>
<h2>Index of /debian/</h2>
<div class="list">
<table summary="Directory Listing" cellpadding="0" cellspacing="0">
<thead><tr><th class="n">Name</th><th class="m">Last Modified</th><th class="s">Size</th></tr></thead>
<tbody>
<tr class="d"><td class="n"><a href="../">..</a>/</td><td class="m">&nbsp;</td><td class="s">- &nbsp;</td></tr>
<tr class="d"><td class="n"><a href="dir/">dir</a>/</td><td class="m">2026-Nov-22 15:13:44</td></tr>
<tr><td class="n"><a href="b%20c.txt">b c.txt</a></td><td class="s">0.1K</td></tr>
<tr><td class="n"><a href="big.bin">big.bin</a></td><td class="s">120.5K</td></tr>
<tr><td class="n"><a href="per%2525cent">per%25cent</a></td><td class="m">2026-Nov-22 15:13:44</td></tr>
<tr><td class="n"><a href="plus%2Bhash%23q%3Fx">plus+hash#q?x</a></td><td class="m">2026-Nov-22 15:13:44</td></tr>
<tr><td class="n"><a href="quo%22te.txt">quo&#x22;te.txt</a></td><td class="m">2026-Nov-22 15:13:44</td></tr>
<tr><td class="n"><a href="zz%3Bsemi%3D1">zz;semi=1</a></td><td class="m">2026-Nov-22 15:13:44</td></tr>
<tr><td class="n"><a href="%C3%BC%26%3Cq%3E.txt">ü&#x26;&#x3C;q&#x3E;.txt</a></td></tr>
</tbody>
</table>
</div>
<div class="foot">lighttpd/1.4.69</div>
</body>
</html>
"""


@pytest.mark.parametrize("page", [APACHE_TABLE, LIGHTTPD], ids=["apache", "lighttpd"])
def test_the_pages_of_apache_and_lighttpd_name_the_same_files(page):
    found = read_index(page.encode(), "text/html;charset=UTF-8", "http://h/debian/")
    named = {unquote(each.name): each for each in found}
    files = {"b c.txt", "big.bin", "per%25cent", "plus+hash#q?x", 'quo"te.txt', "zz;semi=1", "ü&<q>.txt"}
    assert named.keys() == {*files, "dir/"}
    assert {each.size for each in found} == {UNKNOWN_SIZE}, "both round"


_TITLE = b"<title>Index of /</title>"
_HOSTILE = [
    b"<a ",
    b"<a",
    b"<",
    b"<!--",
    b"<!",
    b'<a href="',
    b"<a href='",
    b'<a x="y ',
    b"<a href=x>a<b>",
    b"<a href=x>",
]
_HOSTILE += [
    b"</a",
    b"</a>",
    b"&",
    b"&#1;",
    b"<script>",
    b"<a b c>",
    b"<a = ",
    b"<a href=\n",
    b"<style></styl",
    b"<title>x",
]
_HOSTILE += [
    b"<a href=x></a>x<title></title>",
    b"<img x='",
    b"<img x=",
    b"<a href=%ff>",
    b"<a href=../>",
    b"<A\tHREF = '&#9",
]


@pytest.mark.parametrize("piece", _HOSTILE, ids=repr)
@pytest.mark.parametrize("end", [b"", b"></html>", b"'\"></a></html>"], ids=repr)
def test_a_hostile_page_takes_time_in_proportion_to_its_length(piece, end):
    """48 KiB of ``<a <a`` took a minute."""
    began = time.thread_time()
    with suppress(Damaged):
        read_index(_TITLE + piece * ((1 << 19) // len(piece)) + end, "text/html", URL)
    assert time.thread_time() - began < 3


@pytest.mark.parametrize("page", [b"[" * 100_000, b'[{"name":' * 100_000, b"9" * 5000, b'[{"name": "\\ud800"}]'])
def test_hostile_json_is_damaged(page):
    with pytest.raises(Damaged):
        read_index(page, "application/json", URL)


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        (_TITLE + b"<a href=x>" * 101, "text/html"),
        (_TITLE + b"<b>" * 1001, "text/html"),
        (b"[" + b'{"name":"x"},' * 101 + b'{"name":"x"}]', "application/json"),
        (b"[" + b"[]," * 1001 + b"1]", "application/json"),
    ],
    ids=["links", "tags", "rows", "values"],
)
def test_a_page_of_more_than_any_directory_holds_is_damaged(page, kind, monkeypatch):
    monkeypatch.setattr("penstock.stores.web.index._MOST_LINKS", 100)
    monkeypatch.setattr("penstock.stores.web.index._MOST_MARKS", 1000)
    with pytest.raises(Damaged, match="more than"):
        read_index(page, kind, URL)


def test_a_number_that_names_no_character_is_damaged():
    with pytest.raises(Damaged, match="character"):
        read_index(_TITLE + b"<a href=x>&#" + b"1" * 5000 + b";</a></html>", "text/html", URL)


def test_tags_in_comments_scripts_and_attribute_values_are_ignored():
    page = (
        '<title>Index of /</title><!-- <a href="no">no</a> --><script>"<a href=no>no</a>"</script>'
        "<img alt='><a href=no>no</a>'><a title='a>b' href = \"x\" class=y>x</a><A\nHREF=y >y</A></html>"
    )
    assert _read(page) == [IndexEntry("x"), IndexEntry("y")]


# -- A walk through directories tells what a sorted listing of all keys would tell, however it is continued --


def _children(keys, folder):
    names = {key[len(folder) :] for key in keys if key.startswith(folder)}
    return list({IndexEntry(name.partition("/")[0] + ("/" if "/" in name else "")) for name in names})


def _listed(keys, walk):
    """Follow a walk to its end, each page held to what was asked for."""
    listing = Listing(walk.prefix, walk.after, "/" if walk.flat else "")
    found = []
    while walk is not None:
        page, walk = walk.enter(_children(keys, walk.directory))
        found += [each.key for each in listing.take(page).entries]
        listing.over = False
    return found


def _some_keys(seed):
    draw = random.Random(seed)
    keys = {"/".join(draw.choice("abAü.-0") * draw.randint(1, 2) for _ in range(draw.randint(1, 4))) for _ in range(60)}
    return {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}


@pytest.mark.parametrize("trial", range(20))
def test_walk_yields_the_same_keys_as_a_sorted_flat_listing(trial, seed):
    keys = _some_keys(seed * 100 + trial)
    draw = random.Random(seed + trial)
    for prefix in ("", "a", "a/", "b/a", "zz", draw.choice(sorted(keys))):
        if prefix.endswith("/") and not any(key.startswith(prefix) for key in keys):
            continue
        matching = sorted((key for key in keys if key.startswith(prefix)), key=str.encode)
        assert _listed(keys, Walk.begin(prefix)) == matching
        for after in {draw.choice(matching) if matching else "", f"{prefix}a", f"{prefix}b/"}:
            expected = [key for key in matching if key.encode() > after.encode()]
            assert _listed(keys, Walk.begin(prefix, after)) == expected


@pytest.mark.parametrize("every", [1, 3])
def test_listing_resumes_at_its_position_after_walk_is_discarded(every, seed):
    keys = _some_keys(seed)
    walks, found, walk = ListingWalks(Walk.begin), [], Walk.begin("")
    for number in count():
        page, following = walk.enter(_children(keys, walk.directory))
        found += [each.key for each in page.entries]
        token = walks.keep(following, found[-1] if found else "")
        if not token:
            break
        if page.entries and number % every == 0:
            walks._walks.clear()
        walk = walks.find(token, "", flat=False)
    assert found == sorted(keys, key=str.encode)


def test_a_delimiter_names_directories_and_enters_none():
    keys = {"a/1", "a/2", "a.txt", "b/c/d", "e"}
    page, following = Walk.begin("", flat=True).enter(_children(keys, ""))
    assert ([each.key for each in page.entries], page.prefixes, following) == (["a.txt", "e"], ("a/", "b/"), None)
    page, _ = Walk.begin("b/", flat=True).enter(_children(keys, "b/"))
    assert page.prefixes == ("b/c/",)
    page, _ = Walk.begin("", "a/", flat=True).enter(_children(keys, ""))
    assert ([each.key for each in page.entries], page.prefixes) == (["e"], ("b/",))


def test_keys_have_the_spelling_that_was_asked_for():
    page, _ = Walk.begin("my%20data/%c3%bc").enter([IndexEntry("ü1"), IndexEntry("x")])
    assert [each.key for each in page.entries] == ["my%20data/%c3%bc1"]


def test_a_directory_in_itself_ends():
    walk = Walk.begin("")
    with pytest.raises(Damaged, match="deep"):
        while walk is not None:
            _, walk = walk.enter([IndexEntry("loop/")])
