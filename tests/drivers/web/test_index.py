"""Index pages: only what they name in their own directory, and no size that is not exact."""

import json

import pytest

from penstock.drivers.web.index import Named, read_index
from penstock.errors import Damaged
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


def test_nginx_says_sizes_exactly_where_it_does():
    page = NGINX.replace("{long}", LONG).replace("{short}", LONG[:47])
    assert _read(page) == [
        Named("sub dir/"),
        Named("1%2B1=2.txt", 1234),
        Named(LONG, UNKNOWN_SIZE),
        Named("&lt%3B.txt", 0),
    ]


def test_apache_rounds_sizes_and_links_in_texts_are_no_entries():
    assert _read(APACHE) == [Named("sub/"), Named("a:b.txt"), Named("plus+plus")]


def test_pythons_server_says_no_sizes():
    assert _read(PYTHON) == [Named("b c.txt"), Named("link"), Named("sub/")]


@pytest.mark.parametrize(
    "href",
    [
        *("../x", "/x", "/a%20b/../x", "//other/a%20b/x", "http://h/a%20b/x", "https://h:444/a%20b/x", "x?y=1", "x#y"),
        *("sub/x", "%2e%2e", "%2E", "..%2fx/y", "javascript:x", "", "https://[", "x/../y/z"),
    ],
)
def test_a_link_out_of_the_directory_is_no_entry(href):
    text = href.rstrip("/").rpartition("/")[2]
    found = _read(f'<title>Index of /</title><a href="{href}">{text}</a></html>')
    assert found == []


def test_an_absolute_link_into_the_directory_is_an_entry_in_any_spelling():
    page = '<title>Index of /</title><a href="/a b/x">x</a><a href="https://h/%61%20b/y">y</a></html>'
    assert _read(page) == [Named("x"), Named("y")]


def test_a_name_that_stands_twice_counts_once():
    assert _read('<title>Index of /</title><a href="x">x</a><a href="./x">x</a></html>') == [Named("x")]


@pytest.mark.parametrize("page", ["<title>Welcome</title><a href='x'>x</a></html>", "plain text", "", "<html></html>"])
def test_another_page_is_no_index(page):
    assert _read(page) is None


def test_a_page_that_is_cut_short_is_damaged():
    with pytest.raises(Damaged, match="cut short"):
        _read("<html><title>Index of /</title><a href='x'>x</a>")


def test_a_size_that_no_file_has_is_unknown():
    line = '<title>Index of /</title><a href="x">x</a> 22-Nov-2026 10:58 9999999999999999999\n</html>'
    assert _read(line) == [Named("x")]


def test_json_says_all_of_it():
    rows = [
        {"name": "sub", "type": "directory", "mtime": "Sun, 22 Nov 2026 10:58:00 GMT"},
        {"name": "100% ü?.txt", "type": "file", "mtime": "Sun, 22 Nov 2026 10:58:00 GMT", "size": 7},
        {"name": "socket", "type": "other", "mtime": "Sun, 22 Nov 2026 10:58:00 GMT"},
        {"name": "odd", "type": "file", "mtime": 7, "size": True},
    ]
    assert _read(json.dumps(rows), "application/json") == [
        Named("sub/"),
        Named("100%25 ü%3F.txt", 7, 1795345080.0),
        Named("odd"),
    ]


@pytest.mark.parametrize("rows", ['{"a": 1}', "[1]", "7"])
def test_other_json_is_no_index(rows):
    assert _read(rows, "application/json") is None


@pytest.mark.parametrize("rows", ["[", '[{"name": "../x", "type": "file"}]', '[{"name": 7}]', '[{"name": ".."}]', ""])
def test_odd_json_is_damaged(rows):
    with pytest.raises(Damaged):
        _read(rows, "application/json")


def test_bytes_that_are_no_utf8_stay_as_they_are():
    page = b'<title>Index of /</title><a href="%FFx">\xffx</a></html>'
    assert read_index(page, "text/html", URL) == [Named("%FFx")]
    assert read_index(b'[{"name": "\xffx", "type": "file", "size": 1}]', "application/json", URL) == [Named("%FFx", 1)]
