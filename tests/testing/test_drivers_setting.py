"""A promise that a store is known not to keep is skipped with its reason; without that word, it is held to it."""

import pytest

from penstock.engine.contracts.driver import Attributes
from penstock.stores.memory import MemoryDriver
from penstock.testing.drivers import DriverContract, Setting
from tests.testing.broken_drivers import NOTICED, trial_of


class Careless(MemoryDriver):
    """Heeds no version and no condition."""

    def copy(self, source, key, etag=""):  # noqa: ARG002  the fault
        return super().copy(source, key)

    def put(self, key, body, attributes):
        return super().put(key, body, Attributes(attributes.content_type))


class Known(DriverContract):
    holds_copies = False
    keeps_metadata = False
    heeds = ()


@pytest.mark.parametrize(
    ("promise", "arguments", "reason"),
    [
        ("test_a_copy_is_held_to_a_version", (), "this server copies whatever is there"),
        ("test_metadata_comes_back", (), "no place for metadata"),
        ("test_only_a_new_object_is_made", ("put",), "writes over whatever is there"),
        ("test_only_the_version_that_is_named_is_replaced", ("put",), "writes over whatever is there"),
    ],
)
def test_contract_test_is_skipped_only_for_declared_limitations(promise, arguments, reason):
    with pytest.raises(pytest.skip.Exception, match=reason):
        getattr(Known(), promise)(trial_of(Careless), *arguments)
    with pytest.raises(NOTICED):
        getattr(DriverContract(), promise)(trial_of(Careless), *arguments)


def test_store_setting_defaults_to_every_promise_kept():
    assert (Setting.checks_digests, Setting.keeps_metadata, Setting.holds_copies) == (True, True, True)
    assert set(Setting.heeds) == {"put", "complete"}
