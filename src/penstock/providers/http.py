"""What providers over HTTP share when they open a bucket: the transport, and a warning where TLS is not verified."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.protocols.exchange import Transport
    from penstock.providers.provider import Opening

__all__ = ["connected"]

_LOG = logging.getLogger("penstock")
_unverified: set[str] = set()  # a forked worker need not say it again


def connected(opening: Opening, endpoint: str) -> Transport:
    """Return a transport for a store at ``endpoint`` (``scheme://host[:port]``); no connection is made yet.

    Where ``verify=False`` leaves TLS unverified, the log says so, once per endpoint and process.
    """
    from penstock.transport.loop import connect

    transport, settings = opening.options.transport, opening.settings
    if not transport.verify and endpoint.startswith("https:") and endpoint not in _unverified:
        _unverified.add(endpoint)
        _LOG.warning("%s is not verified (verify=False): anybody on the way there can read and change all", endpoint)
    return connect(replace(transport, ca_file=settings.ca_file, proxy=settings.proxy), opening.provider.where)
