"""The CA file is the first that is named, for any provider."""

import logging

import pytest

from penstock.errors import ConfigError
from penstock.options import TransportOptions
from penstock.stores.http.network import ca_file, first, make_transport, variables
from penstock.stores.store import Opening
from penstock.stores.web.options import HTTPOptions
from penstock.stores.web.store import Web


def test_a_providers_own_name_counts_before_the_variables_of_all(tmp_path):
    own, shared = tmp_path / "own.pem", tmp_path / "shared.pem"
    own.touch()
    shared.touch()
    environ = {"SSL_CERT_FILE": str(shared)}
    assert ca_file(TransportOptions(), environ) == str(shared)
    assert ca_file(TransportOptions(), environ, [("AZURE_CA", str(own))]) == str(own)
    assert ca_file(TransportOptions(ca_file=str(shared)), environ, [("AZURE_CA", str(own))]) == str(shared)
    assert ca_file(TransportOptions(), environ, [("AZURE_CA", None)]) == str(shared)


def test_missing_ca_file_error_names_its_variable(tmp_path):
    with pytest.raises(ConfigError, match=r"^AZURE_CA names the CA file .*gone.*, which does not exist"):
        ca_file(TransportOptions(), {}, [("AZURE_CA", str(tmp_path / "gone"))])


def test_an_empty_variable_counts_as_unset():
    assert first(variables({"A": "", "B": "b"}, "A", "B", "C")) == ("B", "b")
    assert first(variables({}, "A")) == ("", None)


# -- A store whose TLS is not verified is named in the log, once per process; its errors name the provider's settings --


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
