"""``penstock config`` as a user calls it: what holds, where it comes from, and what is wrong; exit codes and JSON."""

import json

import pytest


@pytest.fixture
def toml(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # the user's own file: a project's names no secret
    (tmp_path / "penstock").mkdir()
    path = tmp_path / "penstock/penstock.toml"
    path.write_text(
        "[profiles.data]\nurl = 's3://bucket/x'\noptions.secret_key = 'hushhush'\noptions.access_key = 'a'\n"
    )
    path.chmod(0o600)
    return path


def test_a_profile_is_shown_and_its_secrets_are_not(penstock, toml):
    told = penstock("config", "show", "data")
    assert told.returncode == 0
    assert f"{toml}:2: profiles.data.url" in told.stdout
    assert "hushhush" not in told.stdout + told.stderr
    rows = [json.loads(line) for line in penstock("config", "show", "penstock://data/", "--json").stdout.splitlines()]
    found = {row["name"]: (row["value"], row["origin"]) for row in rows}
    assert found["options.secret_key"] == ("set", f"{toml}:3: profiles.data.options.secret_key")
    assert penstock("config", "show").stdout == f"data  s3://bucket/x  {toml}:1: profiles.data\n"
    refused = penstock("config", "show", "dat")
    assert (refused.returncode, refused.stderr) == (2, "penstock: no profile 'dat': did you mean 'data'?\n")
    toml.unlink()
    assert penstock("config", "show").returncode == 1


def test_a_file_is_checked(penstock, toml):
    told = penstock("config", "validate")
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "1 profile, 0 with errors\n")
    toml.write_text(toml.read_text() + "options.regoin = '${X}'\n[profiles.b]\nurl = 'memory://${NOT_SET}'\n")
    told = penstock("config", "validate", str(toml), "--json")
    assert told.returncode == 2
    first, second = (json.loads(line) for line in told.stdout.splitlines())
    assert (first["profile"], first["severity"], second["severity"]) == ("data", "error", "note")
    assert f"{toml}:5: profiles.data.options.regoin: S3Options has no option" in first["text"]
    assert told.stderr == "2 profiles, 1 with errors\n"
    assert penstock("config", "validate", "nowhere.toml").returncode == 2
