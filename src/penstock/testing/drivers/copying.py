"""Copying on the store's side: the same bytes, of one version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import Changed
from penstock.protocols.driver import Copy
from penstock.testing.drivers.setting import Setting

if TYPE_CHECKING:
    from penstock.testing.drivers.trial import Trial

__all__ = ["Copying"]


class Copying(Setting):
    """Copying on the store's side: the same bytes, of one version."""

    def test_a_copy_has_the_same_bytes(self, trial: Trial) -> None:
        """It replaces what was there, and the original stays."""
        driver = trial.verb(Copy)
        trial.put("from", b"these bytes")
        trial.put("to", b"others, to be replaced")
        etag = trial.do(driver.copy("from", "to"))
        assert trial.get("to") == trial.get("from") == b"these bytes"
        assert trial.head("to").etag == etag

    def test_a_copy_is_held_to_a_version(self, trial: Trial) -> None:
        """Of another one nothing is copied."""
        if not self.holds_copies:
            pytest.skip("this server copies whatever is there")
        driver = trial.verb(Copy)
        old = trial.put("from", b"old bytes")
        new = trial.put("from", b"new bytes")
        with pytest.raises(Changed) as caught:
            trial.do(driver.copy("from", "to", old))
        assert caught.value.url.endswith("from")
        assert trial.keys() == ["from"]
        trial.do(driver.copy("from", "to", new))
        assert trial.get("to") == b"new bytes"
