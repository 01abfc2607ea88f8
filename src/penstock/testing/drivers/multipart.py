"""Uploads in parts: invisible until they are completed, and then one object."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from penstock.errors import Changed, NotFound, PenstockError
from penstock.protocols.driver import Attributes, Multipart, Part, PartCopy, Payload
from penstock.testing.drivers.setting import Setting
from penstock.testing.drivers.trial import octets
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.testing.drivers.trial import Trial

__all__ = ["Uploading"]


class Uploading(Setting):
    """Uploads in parts: invisible until they are completed, and then one object."""

    def test_parts_become_one_object_at_once(self, trial: Trial) -> None:
        """Sent in any order, one of them twice; what stood there before stays until all is there."""
        driver, size = trial.verb(Multipart), self.part_bytes
        data = octets(2 * size + 7)
        trial.put("key", b"old")
        upload = trial.do(driver.create("key", Attributes("text/plain")))
        send = self._sender(trial, upload)
        send(1, 0, b"\0" * size)
        last, second, first = (
            send(3, 2 * size, data[2 * size :]),
            send(2, size, data[size : 2 * size]),
            send(1, 0, data[:size]),
        )
        assert (trial.get("key"), trial.keys()) == (b"old", ["key"])
        etag = trial.do(driver.complete("key", upload, [first, second, last]))
        assert trial.get("key") == data
        assert etag in ("", trial.head("key").etag)

    def test_parts_may_be_copied_from_other_objects(self, trial: Trial) -> None:
        """Beside such that are sent; what is not there is said to be missing."""
        self._ask_for_part_copies()
        driver, uploads, size = trial.verb(PartCopy), trial.verb(Multipart), self.part_bytes
        data = octets(2 * size + 7)
        etag = trial.put("a b/ü+", data)
        upload = trial.do(uploads.create("key", Attributes("text/plain")))
        spans = [Span("a b/ü+", start, start + size, etag) for start in (5, size + 6)]
        etags = trial.all(
            driver.copy_part("key", upload, Part(number, (number - 1) * size), span)
            for number, span in enumerate(spans, 1)
        )
        etags.append(self._sender(trial, upload)(3, 2 * size, b"the end"))
        with pytest.raises(NotFound) as caught:
            trial.do(driver.copy_part("key", upload, Part(4, 3 * size), Span("no/such", 0, 1)))
        assert caught.value.url.endswith("no/such")
        assert trial.keys() == ["a b/ü+"]
        trial.do(uploads.complete("key", upload, etags))
        assert trial.get("key") == data[5 : size + 5] + data[size + 6 : 2 * size + 6] + b"the end"

    def test_a_copied_part_is_held_to_a_version(self, trial: Trial) -> None:
        """Of another one nothing is copied."""
        self._ask_for_part_copies()
        if not self.holds_copies:
            pytest.skip("this server copies whatever is there")
        uploads, driver = trial.verb(Multipart), trial.verb(PartCopy)
        old = trial.put("from", b"old bytes")
        trial.put("from", b"new bytes")
        upload = trial.do(uploads.create("to", Attributes("text/plain")))
        with pytest.raises(Changed) as caught:
            trial.do(driver.copy_part("to", upload, Part(1, 0), Span("from", 0, 9, old)))
        assert caught.value.url.endswith("from")
        trial.do(uploads.abort("to", upload))
        assert trial.keys() == ["from"]

    def test_one_short_part_will_do(self, trial: Trial) -> None:
        """The last part may be of any size, and the only one is the last."""
        driver = trial.verb(Multipart)
        upload = trial.do(driver.create("key", Attributes("text/plain")))
        etag = self._sender(trial, upload)(1, 0, b"little")
        trial.do(driver.complete("key", upload, [etag]))
        assert trial.get("key") == b"little"

    def test_an_aborted_upload_leaves_nothing(self, trial: Trial) -> None:
        """Nor does it harm what stood there; aborting it again is no error, and it cannot be completed any more."""
        driver = trial.verb(Multipart)
        trial.put("key", b"old")
        upload = trial.do(driver.create("key", Attributes("text/plain")))
        etag = self._sender(trial, upload)(1, 0, b"x" * self.part_bytes)
        for _ in range(2):
            trial.do(driver.abort("key", upload))
        with pytest.raises(PenstockError):  # NoSuchUpload on S3; moto and Ceph 16 answer 500
            trial.do(driver.complete("key", upload, [etag]))
        assert (trial.get("key"), trial.keys()) == (b"old", ["key"])

    def test_a_damaged_part_is_refused(self, trial: Trial) -> None:
        """Before it counts."""
        if not (self.checks_digests and trial.driver.abilities.digest):
            pytest.skip("this server does not check digests")
        driver, wrong = trial.verb(Multipart), Payload(b"damaged on its way", sha256(b"as it was").hexdigest())
        upload = trial.do(driver.create("key", Attributes("text/plain")))
        with pytest.raises(PenstockError):
            trial.do(driver.part("key", upload, Part(1, 0), wrong))

    def _ask_for_part_copies(self) -> None:
        if not self.copies_parts:
            pytest.skip("this server copies no parts")

    @staticmethod
    def _sender(trial: Trial, upload: str) -> Callable[[int, int, bytes], str]:
        """Return a function that sends part ``number``, which begins at ``offset``, and returns its ETag."""
        driver = trial.verb(Multipart)
        return lambda number, offset, data: trial.do(
            driver.part("key", upload, Part(number, offset), trial.payload(data))
        )
