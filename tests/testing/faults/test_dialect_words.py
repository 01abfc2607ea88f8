"""Every dialect that the fault server speaks has words, and what reaches it names its endpoint."""

from base64 import b64encode

import pytest

from penstock.testing.faults import FAULTS, Settings
from penstock.testing.faults.dialect import DIALECTS, find_words


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_names_itself_and_how_it_is_reached(name):
    words, settings = find_words(name), Settings(dialect=name)
    assert words.prefix.startswith("x-")
    assert words.scheme
    assert words.store(settings, "http://127.0.0.1:1").endpoint.startswith("http://127.0.0.1:1")
    environment = "; ".join(words.environment(settings, "http://127.0.0.1:1").values())
    assert "http://127.0.0.1:1" in environment
    secret = settings.secret_key
    assert secret in environment or b64encode(secret.encode()).decode() in environment


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialects_own_faults_replace_known_ones(name):
    assert find_words(name).faults.keys() <= FAULTS.keys()


@pytest.mark.parametrize("name", DIALECTS)
def test_settings_hide_secrets(name):
    shown = repr(Settings(dialect=name, tokens=("t0ken",)))
    assert "t0ken" not in shown
    assert "not-a-secret" not in shown


def test_a_module_of_ones_own_is_a_dialect():
    assert find_words("tests.faults.web").scheme == "http"
