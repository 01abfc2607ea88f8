"""Counts of caches add up by directory, stay when a cache is gone, and begin anew in a forked child."""

from penstock.events import CacheCounts, count_cache, measured_caches
from tests.children import forked


def test_counts_of_one_directory_add_up_and_stay(tmp_path):
    directory = str(tmp_path)
    first, second = count_cache(directory), count_cache(directory)
    first.hits, second.hits, second.stored_bytes = 2, 3, 7
    del first
    found = measured_caches()[directory]
    assert found == CacheCounts(hits=5, stored_bytes=7)
    found.hits = 0  # a copy
    assert measured_caches()[directory].hits == 5


def test_a_forked_child_counts_for_itself(tmp_path):
    directory = str(tmp_path)
    count_cache(directory).misses = 4

    def work():
        assert directory not in measured_caches()
        count_cache(directory).misses = 1
        assert measured_caches()[directory].misses == 1

    with forked(work) as status:
        assert status() == 0
    assert measured_caches()[directory].misses == 4
