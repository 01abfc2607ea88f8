"""Contract tests for drivers: subclass ``DriverContract`` and let pytest run its tests on your driver."""

from penstock.testing.drivers.contract import DriverContract
from penstock.testing.drivers.trial import KEYS, Trial

__all__ = ["KEYS", "DriverContract", "Trial"]
