"""Reading: exactly the bytes that were asked for, of the version that was asked for, or an error."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.buffer import Buffer
from penstock.errors import Changed, NotFound, Truncated, Unusable
from penstock.protocols.driver import Copy, Delete, List, Suffix
from penstock.testing.drivers.setting import Setting
from penstock.testing.drivers.trial import WAIT_S, octets
from penstock.values import Span

if TYPE_CHECKING:
    from penstock.protocols.exchange import Exchange
    from penstock.testing.drivers.trial import Trial

__all__ = ["Reading"]


class Reading(Setting):
    """Reading: exactly the bytes that were asked for, of the version that was asked for, or an error."""

    @pytest.mark.parametrize("size", [0, 1, 2, 4095, 4096, 4097, 1 << 20])
    def test_what_is_put_is_read_back(self, trial: Trial, size: int) -> None:
        """Whole, of known and of unknown size; every verb names the same version and size."""
        data = octets(size)
        etag = trial.put("key", data)
        meta = trial.head("key")
        assert (meta.key, meta.size, meta.etag) == ("key", size, etag)
        assert etag
        assert trial.read("key", 0, size, etag, whole=True) == data
        assert trial.get("key", etag) == trial.get("key") == data

    @pytest.mark.parametrize("start", [0, 1, 4095, 4096, 9999])
    @pytest.mark.parametrize("size", [0, 1, 2, 4095, 4096, 4097, 10_000])
    def test_a_range_is_exactly_that_range(self, trial: Trial, start: int, size: int) -> None:
        """At every boundary; an empty one is empty."""
        data = octets(10_000)
        etag = trial.put("key", data)
        stop = min(start + size, 10_000)
        assert trial.read("key", start, stop) == trial.read("key", start, stop, etag) == data[start:stop]

    @pytest.mark.parametrize("size", [1, 2, 4095, 4096, 9999, 10_000, 10_001, 50_000])
    def test_an_end_is_exactly_the_last_bytes(self, trial: Trial, size: int) -> None:
        """As many as were asked for, or all of a shorter object; and it says where they begin."""
        data, buffer = octets(10_000), bytearray(b"#" * 60_000)
        etag = trial.put("key", data)
        for version in ("", etag):
            target = Buffer.borrow(buffer).slice(100, 100 + size)
            ending = trial.do(trial.verb(Suffix).suffix("key", version, target))
            start = max(0, 10_000 - size)
            if ending is not None:  # as a store may that sends all of a shorter object
                assert ending[:2] == (start, 10_000)
                assert ending.etag in ("", etag)
                assert ending.received == 10_000 - start
                assert bytes(buffer[100:][: ending.received]) == data[start:]
            assert ending is not None or trial.driver.abilities.ranges is False, (
                "a range was heeded, or is known not to"
            )
            assert buffer[:100] + buffer[100 + size :] == b"#" * (60_000 - size), "only the target is written"

    def test_an_end_of_an_empty_object_is_empty_or_left_open(self, trial: Trial) -> None:
        """There is no last byte to ask for: some stores refuse such a range."""
        etag = trial.put("key", b"")
        for version in ("", etag):
            ending = trial.do(trial.verb(Suffix).suffix("key", version, Buffer.allocate(10)))
            assert ending is None or ending[:2] + ending[3:] == (0, 0, 0)

    def test_an_end_is_held_to_a_version(self, trial: Trial) -> None:
        """And is one of an object that is there."""
        old = trial.put("key", b"old bytes")
        trial.put("key", b"new bytes, and more of them")
        with pytest.raises(Changed):
            trial.do(trial.verb(Suffix).suffix("key", old, Buffer.allocate(5)))
        with pytest.raises(NotFound) as caught:
            trial.do(trial.verb(Suffix).suffix("no/such", "", Buffer.allocate(5)))
        assert caught.value.url.endswith("no/such")

    def test_of_an_object_of_unknown_size_no_more_is_read_than_stated(self, trial: Trial) -> None:
        """An object of that size is read; a larger one is refused, and says so."""
        trial.put("key", octets(1000))
        assert trial.get("key", most_bytes=1000) == octets(1000)
        with pytest.raises(Unusable, match="999 bytes"):
            trial.get("key", most_bytes=999)

    def test_only_the_target_is_written(self, trial: Trial) -> None:
        """Its neighbours in the same buffer stay as they are."""
        data = octets(10_000)
        trial.put("key", data)
        buffer = bytearray(b"#" * 10_000)
        target = Buffer.borrow(buffer).slice(100, 6_100)
        assert trial.do(trial.driver.read(Span("key", 1_000, 7_000), target)) == target.size
        assert bytes(buffer) == b"#" * 100 + data[1_000:7_000] + b"#" * 3_900

    @pytest.mark.parametrize(("start", "stop"), [(10, 11), (10, 20), (5, 11), (100, 200), (0, 5_000)])
    def test_past_the_end_is_truncated(self, trial: Trial, start: int, stop: int) -> None:
        """A range may begin or end beyond the object; neither gives fewer bytes in silence."""
        trial.put("key", b"0123456789")
        with pytest.raises(Truncated):
            trial.read("key", start, stop)

    @pytest.mark.parametrize("size", [9, 11])
    def test_a_whole_object_of_another_size_has_changed(self, trial: Trial, size: int) -> None:
        """What was listed with one size and is read with another is no longer what was listed."""
        trial.put("key", b"0123456789")
        with pytest.raises(Changed):
            trial.read("key", 0, size, whole=True)

    def test_another_version_is_changed(self, trial: Trial) -> None:
        """Reading is held to an ETag, whole, in part, and where the size is unknown."""
        old = trial.put("key", b"old bytes")
        trial.put("key", b"new bytes, and more of them")
        for span in (Span("key", 0, 9, old, whole=True), Span("key", 1, 3, old), Span("key", 0, 0, old)):
            with pytest.raises(Changed):
                trial.do(trial.driver.read(span, Buffer.allocate((span.stop or 0) - span.start)))
        with pytest.raises(Changed):
            trial.get("key", old)

    def test_a_missing_object_is_not_found(self, trial: Trial) -> None:
        """By every verb that needs one; the error names it."""
        driver, key = trial.driver, "no/such"
        ranges = [driver.read(Span(key, 0, size), Buffer.allocate(size)) for size in (0, 10)]
        exchanges: list[Exchange[Any]] = [driver.head(key), driver.get(key, ""), *ranges]
        if trial.has(Copy):
            exchanges.append(trial.verb(Copy).copy(key, "copy"))
        for exchange in exchanges:
            with pytest.raises(NotFound) as caught:
                trial.do(exchange)
            assert caught.value.url.endswith(key)
        if trial.has(List):
            assert trial.keys() == []

    def test_metadata_comes_back(self, trial: Trial) -> None:
        """Names in lower case; the content type too, and of a copy as of the original."""
        if not self.keeps_metadata:
            pytest.skip("this store has no place for metadata")
        notes = {"note": "some words: größer, 日本", "accent": "voilà … Å", "empty": "", "spaces": " a  b "}
        trial.put("key", b"", notes)
        if trial.has(Copy):
            trial.do(trial.verb(Copy).copy("key", "copy"))
        for key in ("key", "copy") if trial.has(Copy) else ("key",):
            meta = trial.head(key)
            assert ({name: meta.metadata.get(name) for name in notes}, meta.content_type) == (notes, "text/plain")

    def test_the_time_of_change_is_now(self, trial: Trial) -> None:
        """By a server's clock, or unknown."""
        trial.put("key", b"")
        listed = [entry.modified for entry in next(trial.pages()).entries] if trial.has(List) else []
        for modified in (trial.head("key").modified, *listed):
            assert modified is None or abs(modified - time()) < WAIT_S

    def test_keys_are_kept_byte_for_byte(self, trial: Trial) -> None:
        """Whatever a user may call an object: written, listed, described, read, copied, deleted under that name."""
        trial.put_all(self.keys)
        if trial.has(List):
            assert trial.keys() == sorted(self.keys, key=str.encode)
        for key in self.keys:
            assert trial.get(key) == key.encode(), key
            assert trial.head(key).size == len(key.encode())
            if trial.has(Copy):
                trial.do(trial.verb(Copy).copy(key, "copy"))
                assert trial.get("copy") == key.encode(), key
        if trial.has(Delete, Copy, List):
            trial.all([trial.verb(Delete).delete(key) for key in (*self.keys, "copy")])
            assert trial.keys() == []

    def test_an_address_ends_in_the_key(self, trial: Trial) -> None:
        """As a user writes it, unescaped."""
        assert trial.driver.url("a b/ü").endswith("/a b/ü")
