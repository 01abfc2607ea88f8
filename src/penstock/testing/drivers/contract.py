"""The promises of ``protocols.driver`` as tests, one for each; those of verbs that a driver lacks are skipped."""

from __future__ import annotations

from penstock.testing.drivers.copying import Copying
from penstock.testing.drivers.listing import Listing
from penstock.testing.drivers.multipart import Uploading
from penstock.testing.drivers.reading import Reading
from penstock.testing.drivers.writing import Writing

__all__ = ["DriverContract"]


class DriverContract(Reading, Listing, Writing, Copying, Uploading):
    """Every promise of a driver, one test each. A test of a verb that the driver lacks is skipped, and names the verb.

    A subclass whose name begins with ``Test`` overrides ``store``::

        class TestMine(DriverContract):
            @pytest.fixture
            def store(self):
                return MyDriver(...), Threads()

    A read-only store is filled by another driver, which the fixture ``writer`` returns. The class attributes say which
    keys the store holds and which promises its server is known not to keep (``penstock.testing.drivers.setting``).
    """
