"""A store whose TLS is not verified is named in the log, once per process; its errors name the provider's settings."""

import logging

from penstock.options import TransportOptions
from penstock.stores.http.network import make_transport
from penstock.stores.store import Opening
from penstock.stores.web.options import HTTPOptions
from penstock.stores.web.store import Web


def opened(endpoint, **transport):
    options = HTTPOptions(transport=TransportOptions(**transport))
    settings, _ = Web().resolve(options, {})
    return make_transport(Opening("https", "host", options, settings, {}), endpoint, Web.where)


def test_the_log_warns_once_per_endpoint_and_only_of_tls(caplog):
    caplog.set_level(logging.WARNING, "penstock")
    for endpoint in ("https://one.test", "https://one.test", "https://two.test", "http://three.test"):
        opened(endpoint, verify=False).close()
    opened("https://four.test").close()
    said = [record.message.split()[0] for record in caplog.records]
    assert said == ["https://one.test", "https://two.test"]


def test_transport_location_name_matches_the_web_store():
    transport = opened("https://five.test")
    assert transport.where == Web.where == "the URL"
    transport.close()
