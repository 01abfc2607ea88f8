"""Options of Google Cloud Storage refuse halves and contradictions, and show no secret."""

import pytest

from penstock.errors import ConfigError
from penstock.stores.gcs.options import GCSOptions


@pytest.mark.parametrize(
    "options",
    [
        {"access_key": "a"},
        {"secret_key": "s"},
        {"anonymous": True, "token": "t"},
        {"access_key": "a", "secret_key": "s", "token": "t"},
        {"credentials_file": "f", "credentials_json": "{}"},
        {"token": "t", "credentials": print},
        {"credentials_process": ("a",), "credentials_file": "f"},
        {"anonymous": True, "service_account": "a@b"},
        {"access_key": "a", "secret_key": "s", "service_account": "a@b"},
    ],
)
def test_halves_and_contradictions_are_refused(options):
    with pytest.raises(ConfigError, match=r"together|contradict|needs"):
        GCSOptions(**options)


def test_no_secret_is_shown():
    shown = repr((GCSOptions(access_key="k3y", secret_key="s3cret"), GCSOptions(token="t0ken")))
    shown += repr(GCSOptions(credentials_json='{"private_key": "pr1vate"}', user_project="payer"))
    assert not any(secret in shown for secret in ("k3y", "s3cret", "t0ken", "pr1vate"))
    assert "payer" in shown
