"""Pages of sorted keys are S3's: bounded, exclusive, grouped; together they are everything once."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.stores import direct
from penstock.stores.direct import key_bytes, page_of
from penstock.values import ObjectMeta

_keys = st.lists(st.text("ab/-", min_size=1, max_size=6), unique=True).map(sorted)


def _pages(keys, prefix, delimiter):
    metas = [ObjectMeta(key, 0) for key in keys if key.startswith(prefix)]
    page = page_of(metas, prefix, after="", delimiter=delimiter)
    yield page
    while page.token:
        page = page_of(metas, prefix, after=page.token, delimiter=delimiter)
        yield page


@given(_keys, st.text("ab/", max_size=2), st.sampled_from(["", "/", "-"]), st.integers(1, 4))
def test_pages_together_are_everything_once(keys, prefix, delimiter, size):
    direct._PAGE, before = size, direct._PAGE
    try:
        pages = list(_pages(keys, prefix, delimiter))
    finally:
        direct._PAGE = before
    below = [key for key in keys if key.startswith(prefix)]
    cut = [key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "") for key in below]
    assert [entry.key for page in pages for entry in page.entries] == [
        k for k, (_, m, _) in zip(below, cut, strict=True) if not m
    ]
    assert [group for page in pages for group in page.prefixes] == list(
        dict.fromkeys(prefix + head + mark for head, mark, _ in cut if mark)
    )
    assert all(len(page.entries) + len(page.prefixes) <= size for page in pages)


def test_direct_call_records_its_blocks_flag():
    assert direct.direct(lambda: 1).request.blocks
    assert not direct.direct(lambda: 1, blocks=False).request.blocks


def test_order_is_that_of_bytes():
    assert sorted(["🐶", "\uffee"], key=key_bytes) == ["\uffee", "🐶"]
    assert key_bytes("caf\udce9") == b"caf\xe9"
