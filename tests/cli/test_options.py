"""The options that say where a store is, and how a command takes them."""

from __future__ import annotations

import dataclasses
from inspect import signature

import pytest

import penstock as ps
from penstock.cli.options import Given, settle_store, with_options, with_store
from penstock.errors import ConfigError
from penstock.stores.s3.services import AWS


def test_the_options_say_where_the_store_is(penstock, bucket, monkeypatch):
    bucket.client.put_object(Bucket=bucket.name, Key="b/3", Body=b"x")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket.store.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket.store.secret_key)
    options = ("--endpoint", bucket.store.endpoint, "--region", bucket.store.region)
    assert penstock("ls", f"{bucket.url}b/", *options).stdout == f"{bucket.url}b/3\n"


NOTHING = {"store": None, "option": None, "endpoint": None, "region": None, "profile": None, "anonymous": False}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ps.StoreOptions()),
        ({"anonymous": True}, ps.S3Options(anonymous=True)),
        ({"endpoint": "http://127.0.0.1:1", "region": "r"}, ps.S3Options(endpoint="http://127.0.0.1:1", region="r")),
        ({"option": ["region=r", "retry.attempts=3"]}, ps.S3Options(region="r", retry=ps.RetryOptions(attempts=3))),
        ({"option": ["cache.path=/near"]}, ps.S3Options(cache=ps.CacheOptions(path="/near"))),
        ({"option": ["write.part_bytes=8 MiB"]}, ps.S3Options(write=ps.WriteOptions(part_bytes=8 << 20))),
        (
            {"option": ["transport.proxy=http://proxy:1"]},
            ps.S3Options(transport=ps.TransportOptions(proxy="http://proxy:1")),
        ),
    ],
    ids=["none", "unsigned", "a server", "options", "a cache", "a size", "a proxy"],
)
def test_options_are_of_the_class_of_the_url_s_provider(given, expected):
    seen = []
    command = with_store(lambda url, *, store: seen.append(store))  # noqa: ARG005  a command's
    command(url="s3://bucket/", **(NOTHING | given))
    assert seen == [expected]
    assert type(seen[0]) is type(expected)


def test_a_profile_s_name_is_passed_on_and_options_count_before_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "[profiles.near]\nprovider = 's3'\noptions = { region = 'eu', endpoint = 'http://127.0.0.1' }\n"
    (tmp_path / "penstock.toml").write_text(text + "[profiles.path]\nurl = 's3://bucket/x'\n")
    assert settle_store(Given("near"), ["s3://bucket/"]) == "near"
    region = Given("near", (("--region", "region", "us"),))
    assert settle_store(region, ["s3://bucket/", "local"]) == ps.S3Options(region="us", endpoint="http://127.0.0.1")
    assert settle_store(Given("", region.options), ["penstock://path/y"]) == ps.S3Options(region="us")
    with pytest.raises(ConfigError, match="leave out store='near'"):
        settle_store(region, ["penstock://path/y"])


@pytest.mark.parametrize(
    ("name", "value", "urls", "says"),
    [
        ("regoin", "eu", ["s3://bucket/"], "-o regoin: S3Options has no option 'regoin': did you mean 'region'?"),
        ("region", "eu", ["local"], "-o region: StoreOptions has no option 'region'"),
        ("retry.attempt", "3", ["local"], "RetryOptions has no option 'attempt': did you mean 'attempts'?"),
        ("retry.attempts", "many", ["s3://bucket/"], "-o retry.attempts must be a whole number, got 'many'"),
        ("retry", "3", ["s3://bucket/"], "S3Options has no option 'retry'"),
        ("secret_key", "hushhush", ["s3://bucket/"], "every user of a machine sees command lines"),
        ("transport.proxy", "http://me:hushhush@proxy", ["s3://bucket/"], "every user of a machine sees command lines"),
        ("addressing", "house", ["s3://bucket/"], "must be 'auto' or 'path' or 'virtual', got 'house'"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_with_the_remedy(name, value, urls, says):
    with pytest.raises(ConfigError) as refused:
        settle_store(Given("", ((f"-o {name}", name, value),)), urls)
    assert says in str(refused.value)
    assert "hushhush" not in str(refused.value)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LakeOptions(ps.StoreOptions):
    region: str = ""


def test_two_providers_take_the_options_of_every_store_alone(monkeypatch):
    class Lake(AWS):
        name = "Lake"
        schemes = ("lake",)
        options = LakeOptions

    monkeypatch.setattr("penstock.stores.urls._loaded", {"lake": Lake()})
    given = Given("", (("-o", "retry.attempts", "3"),))
    assert settle_store(given, ["s3://bucket/", "lake://bucket/"]) == ps.StoreOptions(retry=ps.RetryOptions(attempts=3))
    with pytest.raises(ConfigError, match="but the URLs are of s3:// and lake://: give each"):
        settle_store(Given("", (("--region", "region", "eu"),)), ["s3://bucket/", "lake://bucket/"])
    assert settle_store(Given("", (("--region", "region", "eu"),)), ["lake://bucket/"]) == LakeOptions(region="eu")


def test_a_command_takes_profiles_and_options(penstock, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/x").write_bytes(b"x")
    (tmp_path / "penstock.toml").write_text("[profiles.files]\nurl = 'disk'\n[profiles.other]\nprovider = 's3'\n")
    assert penstock("ls", "penstock://files/").stdout == "penstock://files/x\n"
    assert penstock("ls", "--store", "files", "disk/").returncode == 0
    assert penstock("cp", "-o", "retry.attempts=2", "penstock://files/x", "y").returncode == 0
    refused = penstock("ls", "--region", "eu", "disk/")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "--region: StoreOptions has no option 'region'" in refused.stderr
    assert penstock("ls", "-o", "region", "disk/").returncode == 2
    for options in ((), ("-o", "retry.attempts=2")):
        assert penstock("ls", "--store", "files", *options, "disk/").returncode == 0
        assert penstock("ls", "--store", "files", *options, "penstock://files/").returncode == 0
        refused = penstock("ls", "--store", "other", *options, "penstock://files/")
        assert (refused.returncode, "leave out store='other'" in refused.stderr) == (2, True)
        refused = penstock("ls", "--store", "nowhere", *options, "disk/")
        assert (refused.returncode, "no profile 'nowhere'" in refused.stderr) == (2, True)
    refused = penstock("mv", "penstock://files/x", "disk/x")
    assert (refused.returncode, (tmp_path / "disk/x").read_bytes()) == (2, b"x")
    assert "write both in the same form" in refused.stderr


def test_a_command_keeps_its_own_arguments_before_the_options_it_is_given():
    def limits(*, count: int = 3, rate: float = 0.5) -> tuple[int, float]:
        return count, rate

    @with_options("limits", limits)
    def command(url: str, *, limits: tuple[int, float]) -> None:
        seen.append((url, limits))

    seen: list[object] = []
    assert list(signature(command).parameters) == ["url", "count", "rate"]
    assert set(command.__annotations__) == {"url", "count", "rate"}
    command(url="a", count=1, rate=2.0)
    assert seen == [("a", (1, 2.0))]
