"""A store whose TLS is not verified is named in the log, once per process."""

import logging

from penstock.options import TransportOptions
from penstock.providers.http import connected


def test_the_log_warns_once_per_endpoint_and_only_of_tls(caplog):
    caplog.set_level(logging.WARNING, "penstock")
    unverified = TransportOptions(verify=False)
    for endpoint in ("https://one.test", "https://one.test", "https://two.test", "http://three.test"):
        connected(unverified, endpoint, ca_file=None, proxy=None).close()
    connected(TransportOptions(), "https://four.test", ca_file=None, proxy=None).close()
    said = [record.message.split()[0] for record in caplog.records]
    assert said == ["https://one.test", "https://two.test"]
