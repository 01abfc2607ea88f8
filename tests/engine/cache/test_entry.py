"""How an entry lies in its file: what was written is read again, and whatever is damaged is seen."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.cache.entry import PAGE_BYTES, About, about, begins, footer, intact, parse
from tests.amounts import examples

NAME = b"n" * 16
SIZES = st.sampled_from([0, 1, 1000, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 1])
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)


@settings(max_examples=examples(25))
@given(SIZES, TEXTS, TEXTS, st.integers(-(1 << 62), 1 << 62), st.integers(-1, 1 << 62), st.floats(0, 1e12))
def test_parsed_footer_returns_the_values_that_were_written(size, url, etag, start, object_bytes, kept_s):
    data, what = Random(size).randbytes(size), About(url, etag, start, object_bytes)
    text = footer(NAME, data, what, kept_s)
    found = parse(text)
    assert begins(text, size + len(text)) == size
    assert (found.name, found.size_bytes, found.kept_s) == (NAME, size, kept_s)
    assert about(text, found) == what
    assert found.whole == (start == 0 and object_bytes == size)
    assert intact(text, 0, data)


@settings(max_examples=examples(25))
@given(SIZES.filter(bool), st.integers(0, 1 << 30))
def test_a_bit_that_flips_is_seen_in_the_footer_and_in_the_bytes(size, number):
    random = Random(number)
    data = bytearray(random.randbytes(size))
    text = bytearray(footer(NAME, bytes(data), About("s3://b/k", "e", 0, size), 1.5))
    at, where = random.randrange(len(text)), random.randrange(size)
    text[at] ^= 1 << random.randrange(8)
    assert begins(bytes(text), size + len(text)) != size or parse(bytes(text)) is None
    text[at] ^= 0xFF
    data[where] ^= 1 << random.randrange(8)
    page = where // PAGE_BYTES
    clean = footer(NAME, bytes(data), About("s3://b/k", "e", 0, size), 1.5)
    data[where] ^= 0x10
    pages = [bytes(data)[at : at + PAGE_BYTES] for at in range(0, size, PAGE_BYTES)]
    assert [at for at, each in enumerate(pages) if not intact(clean, at, each)] == [page]


def test_too_short_data_has_no_footer():
    text = footer(NAME, b"data", About("s3://b/k", "e", 0, 4), 1.5)
    assert [begins(text[cut:], len(text[cut:])) for cut in range(len(text) - 60, len(text))] == [-1] * 60
    assert parse(b"") is None
