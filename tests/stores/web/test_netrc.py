"""The netrc file, as curl reads it; nothing of it is quoted."""

import pytest

from penstock.errors import ConfigError
from penstock.stores.web.store import digest, login

FILE = "machine one.example login me password hush1\ndefault login anonymous password hush2\n"


@pytest.fixture
def environ(tmp_path):
    (tmp_path / "netrc").write_text(FILE)
    return {"NETRC": str(tmp_path / "netrc")}


def test_a_machine_is_found_or_the_default(environ):
    assert login("one.example", environ) == ("me", "hush1")
    assert login("two.example", environ) == ("anonymous", "hush2")


def test_the_home_s_file_is_read_where_none_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"\.netrc does not exist"):
        login("one.example", {})
    (tmp_path / ".netrc").write_text(FILE)
    (tmp_path / ".netrc").chmod(0o600)
    assert login("one.example", {}) == ("me", "hush1")


@pytest.mark.parametrize(
    ("text", "words"), [("machine a login b hush", "line"), ("machine a login b password hush", "neither")]
)
def test_unusable_netrc_file_raises_config_error_without_quoting_secret(tmp_path, text, words):
    (tmp_path / "netrc").write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        login("one.example", {"NETRC": str(tmp_path / "netrc")})
    assert "hush" not in str(caught.value)


def test_netrc_digest_changes_with_content_and_reveals_no_secret(tmp_path, environ):
    before = digest(environ)
    (tmp_path / "netrc").write_text(FILE.replace("hush1", "hush3"))
    assert digest(environ) != before
    assert b"hush" not in before
    assert digest({"NETRC": str(tmp_path / "none")}) == b""
