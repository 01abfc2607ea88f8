"""Writing and deleting: atomically, on a condition or without one."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Literal

import pytest

from penstock.errors import AlreadyExists, PenstockError, PreconditionFailed
from penstock.protocols.driver import Attributes, Delete, Multipart, Part, Payload, Put
from penstock.testing.drivers.setting import Setting

if TYPE_CHECKING:
    from penstock.testing.drivers.trial import Trial

__all__ = ["Writing"]


class Writing(Setting):
    """Writing and deleting: atomically, on a condition or without one."""

    def test_a_put_replaces_whole(self, trial: Trial) -> None:
        """Nothing of a longer predecessor is left."""
        trial.verb(Put)
        trial.put("key", b"a long object" * 100)
        trial.put("key", b"short")
        assert trial.get("key") == b"short"

    def test_deleting_a_missing_object_is_no_error(self, trial: Trial) -> None:
        """And deleting one that is there deletes that one."""
        driver = trial.verb(Delete)
        trial.put_all(["one", "other"])
        for _ in range(2):
            trial.do(driver.delete("one"))
        assert trial.keys() == ["other"]

    @pytest.mark.parametrize("verb", ["put", "complete"])
    def test_only_a_new_object_is_made(self, trial: Trial, verb: Literal["put", "complete"]) -> None:
        """Where one is there already it stays, and the writer is told."""
        trial.verb(Put if verb == "put" else Multipart)
        if verb not in self.heeds or not getattr(trial.driver.abilities, verb).create:
            pytest.skip("this store writes over whatever is there")
        new = Attributes("text/plain", create_only=True)
        self._write(trial, verb, b"first", new)
        with pytest.raises(AlreadyExists):
            self._write(trial, verb, b"second", new)
        assert trial.get("key") == b"first"

    @pytest.mark.parametrize("verb", ["put", "complete"])
    def test_only_the_version_that_is_named_is_replaced(self, trial: Trial, verb: Literal["put", "complete"]) -> None:
        """Another one stays; where there is none at all nothing is written."""
        trial.verb(Put if verb == "put" else Multipart)
        if verb not in self.heeds or not getattr(trial.driver.abilities, verb).replace:
            pytest.skip("this store writes over whatever is there")
        first = trial.put("key", b"first")
        self._write(trial, verb, b"second", Attributes("text/plain", replaces=first))
        with pytest.raises(PreconditionFailed) as caught:
            self._write(trial, verb, b"third", Attributes("text/plain", replaces=first))
        assert caught.value.url.endswith("/key")
        assert trial.get("key") == b"second"
        trial.do(trial.verb(Delete).delete("key"))
        with pytest.raises(PreconditionFailed):
            self._write(trial, verb, b"fourth", Attributes("text/plain", replaces=first))
        assert trial.keys() == []

    def _write(self, trial: Trial, verb: Literal["put", "complete"], data: bytes, attributes: Attributes) -> None:
        if verb == "put":
            trial.do(trial.verb(Put).put("key", trial.payload(data), attributes))
        else:
            driver, new, old = trial.verb(Multipart), attributes.create_only, attributes.replaces
            upload = trial.do(driver.create("key", attributes))
            etag = trial.do(driver.part("key", upload, Part(1, 0), trial.payload(data)))
            trial.do(driver.complete("key", upload, [etag], create_only=new, replaces=old))

    def test_a_damaged_body_is_refused(self, trial: Trial) -> None:
        """Before it is published: what stood there stays."""
        if not (self.checks_digests and trial.driver.abilities.digest):
            pytest.skip("this server does not check digests")
        trial.put("key", b"old")
        driver, wrong = trial.verb(Put), Payload(b"damaged on its way", sha256(b"as it was").hexdigest())
        with pytest.raises(PenstockError):
            trial.do(driver.put("key", wrong, Attributes("text/plain")))
        assert trial.get("key") == b"old"
