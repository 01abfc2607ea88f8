"""AIStore's token is found where its own tools find it, and never quoted."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.stores.s3.credentials import auth_token


def test_the_variable_comes_before_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "token"
    file.write_text('{"token": "in-the-file"}')
    assert auth_token({}) == ("", "")
    assert auth_token({"AIS_AUTHN_TOKEN_FILE": str(file)}) == (f"the token file {file}", "in-the-file")
    both = {"AIS_AUTHN_TOKEN_FILE": str(file), "AIS_AUTHN_TOKEN": "said"}
    assert auth_token(both) == ("AIS_AUTHN_TOKEN", "said")
    file.write_text("plain\n")
    assert auth_token({"AIS_AUTHN_TOKEN_FILE": str(file)})[1] == "plain"


def test_the_file_of_the_command_line_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".config" / "ais" / "cli"
    folder.mkdir(parents=True)
    (folder / "auth.token").write_text('{"token": "logged-in"}')
    assert auth_token({})[1] == "logged-in"


@pytest.mark.parametrize("text", ["", "{}", '{"token": 1}', "hush hush", '{"token": "hush\\u00e9"}'])
def test_invalid_token_file_is_refused_without_quoting_its_content(tmp_path, text):
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(ConfigError, match="holds no token") as caught:
        auth_token({"AIS_AUTHN_TOKEN_FILE": str(file)})
    assert "hush" not in str(caught.value)
    with pytest.raises(ConfigError, match="names the file /no/such, which is not there"):
        auth_token({"AIS_AUTHN_TOKEN_FILE": "/no/such"})


@pytest.mark.usefixtures("homeless")
def test_missing_home_directory_yields_empty_token():
    assert auth_token({}) == ("", "")
