"""Names of entries: different for all that differs, the same in each process, whatever keys look like."""

import subprocess
import sys
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.cache.entry import NAME_BYTES, CachedPart, Namer, parts

KEYS = st.text(st.characters(codec=None), max_size=20) | st.sampled_from(
    ["a", "a/b", "", "ä", "\udcff", "../x", "1:2:"]
)
ETAGS = st.sampled_from(["", "e", "e1", "1:e"])
PARTS = st.builds(CachedPart, st.sampled_from("brue"), st.integers(-9, 1 << 50), st.none() | st.integers(0, 1 << 50))
MADE = st.tuples(st.sampled_from(["one", "other", ("s3", "b")]), KEYS, ETAGS, PARTS)


@given(MADE, MADE)
def test_names_are_equal_only_where_all_is_equal(one, other):
    names = [Namer(store).name(key, etag, part) for store, key, etag, part in (one, other)]
    assert (names[0] == names[1]) == (one == other)
    assert {len(name) for name in names} == {NAME_BYTES}


def test_names_are_the_same_in_another_process():
    words = (
        "from penstock.engine.cache.entry import Namer, CachedPart; "
        "print(Namer(('s3', 'b')).name('k', 'e', CachedPart('b', 0, None)).hex())"
    )
    said = subprocess.run([sys.executable, "-c", words], check=True, capture_output=True, text=True).stdout
    assert said.strip() == Namer(("s3", "b")).name("k", "e", CachedPart("b", 0, None)).hex()


@given(st.integers(0, 500), st.integers(0, 500), st.integers(1, 200))
def test_parts_cover_a_range_and_no_part_crosses_a_block(start, size, block):
    found = list(parts(start, start + size, block))
    ends = [each.stop or min(each.start + block, start + size) for each in found]
    assert sum(end - each.start for each, end in zip(found, ends, strict=True)) == size
    assert all(end == after.start for end, (_, after) in zip(ends, pairwise(found), strict=False))
    assert all(each.start // block == (end - 1) // block for each, end in zip(found, ends, strict=True))
    assert all((each.kind == "b") == (each.start % block == 0) for each in found)
