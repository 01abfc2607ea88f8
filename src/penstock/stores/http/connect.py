"""Connection setup shared by providers over HTTP: the transport, and a warning where TLS is not verified."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engine.contracts.exchange import Transport
    from penstock.stores.provider import Opening

__all__ = ["connected"]

_LOG = logging.getLogger("penstock")
# Endpoints already warned about: forked workers inherit them and do not warn again.
_unverified: set[str] = set()


def connected(opening: Opening, endpoint: str) -> Transport:
    """Return a transport for a store at ``endpoint`` (``scheme://host[:port]``); no connection is made yet.

    With ``verify=False`` and ``https``, a warning is logged once per endpoint and process.
    """
    from penstock.engine.transport.loop import connect

    transport, settings = opening.options.transport, opening.settings
    if not transport.verify and endpoint.startswith("https:") and endpoint not in _unverified:
        _unverified.add(endpoint)
        _LOG.warning("%s is not verified (verify=False): anybody on the way there can read and change all", endpoint)
    return connect(replace(transport, ca_file=settings.ca_file, proxy=settings.proxy), opening.provider.where)
