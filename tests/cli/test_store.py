"""The options that say where a store is, and how a command takes them."""

from __future__ import annotations

from inspect import signature

import pytest

import penstock as ps
from penstock.cli.store import with_options, with_store


def test_the_options_say_where_the_store_is(penstock, bucket, monkeypatch):
    bucket.client.put_object(Bucket=bucket.name, Key="b/3", Body=b"x")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket.store.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket.store.secret_key)
    options = ("--endpoint", bucket.store.endpoint, "--region", bucket.store.region)
    assert penstock("ls", f"{bucket.url}b/", *options).stdout == f"{bucket.url}b/3\n"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ps.StoreOptions()),
        ({"anonymous": True}, ps.S3Options(anonymous=True)),
        ({"endpoint": "http://127.0.0.1:1", "region": "r"}, ps.S3Options(endpoint="http://127.0.0.1:1", region="r")),
    ],
    ids=["none", "unsigned", "a server"],
)
def test_options_that_say_nothing_of_s3_suit_every_provider(given, expected):
    seen = []
    command = with_store(lambda *, store: seen.append(store))
    command(**({"endpoint": None, "region": None, "profile": None, "anonymous": False} | given))
    assert seen == [expected]
    assert type(seen[0]) is type(expected)


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
