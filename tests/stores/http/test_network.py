"""The CA file is the first that is named, for any provider."""

import pytest

from penstock.errors import ConfigError
from penstock.options import TransportOptions
from penstock.stores.http.network import ca_file, first, variables


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
    with pytest.raises(ConfigError, match=r"^AZURE_CA names the CA file .*gone.*, which is not there"):
        ca_file(TransportOptions(), {}, [("AZURE_CA", str(tmp_path / "gone"))])


def test_an_empty_variable_counts_as_unset():
    assert first(variables({"A": "", "B": "b"}, "A", "B", "C")) == ("B", "b")
    assert first(variables({}, "A")) == ("", None)
