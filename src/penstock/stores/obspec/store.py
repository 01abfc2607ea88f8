"""``obspec://name``: a store of another library that has obspec's methods."""

from __future__ import annotations

import os
from collections.abc import Mapping
from sys import maxsize
from typing import TYPE_CHECKING

from penstock.engine.contracts.driver import Abilities, Limits
from penstock.errors import ConfigError, Unusable, conceal
from penstock.stores.fsspec.store import find_texts
from penstock.stores.obspec.options import ObspecOptions
from penstock.stores.store import Opening, Store

if TYPE_CHECKING:
    from collections.abc import Hashable

    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport

# Threads of one store: each waits in a call of the foreign library.
_CALLS = 64


class Obspec(Store):
    """``obspec://name``: the store in ``ObspecOptions.store``."""

    name = "obspec"
    schemes = ("obspec",)
    # One call lists everything, in any order.
    limits = Limits(page_keys=maxsize)
    abilities = Abilities(digest=None, forms=("usual", "none"), seeks=False, forks=False)
    options = ObspecOptions
    example = "ObspecOptions(store=…)"

    def open(self, opening: Opening) -> tuple[Driver, Transport]:
        from penstock.engine.transport.limited import LimitedThreads
        from penstock.stores.obspec.driver import ObspecDriver

        options = opening.options
        if options.store.pid != os.getpid():
            name = type(options.store.value).__name__
            message = f"{name} belongs to the process that this one was forked from, and might wait forever here: "
            raise Unusable(f"{message}start workers with multiprocessing_context='spawn'", url=opening.root)
        config = getattr(options.store.value, "config", None)
        secrets = find_texts(config, secret=True) if isinstance(config, Mapping) else []
        conceal(*secrets)
        driver = ObspecDriver(opening.root, options.store.value, secrets)
        driver.abilities = self.abilities
        return driver, LimitedThreads(min(options.transport.connections, _CALLS), options.retry.patience_s)

    def resolve(self, options: ObspecOptions, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:  # noqa: ARG002
        """Return the identity of the foreign store as settings, and no other identity."""
        if options.store is None:
            raise ConfigError("obspec:// needs the store that it stands for: pass store=ObspecOptions(store=…)")
        return options.store.place, None
