"""A store has obspec's protocols, every one of them, and keeps what they promise."""

from __future__ import annotations

import asyncio
import inspect
import io
from datetime import UTC, datetime

import numpy as np
import obspec
import pytest
from obspec.exceptions import BaseError, map_exception

from penstock.errors import (
    AlreadyExists,
    Bug,
    Changed,
    Forbidden,
    NotFound,
    PenstockError,
    Throttled,
    Unauthenticated,
    Unusable,
)
from penstock.interop.obspec import Store, convert_error, describe_object, rename_errors, resolve_range
from penstock.values import ObjectMeta

PROTOCOLS = [
    getattr(obspec, name)
    for name in obspec.__all__
    if getattr(getattr(obspec, name), "_is_protocol", False) and not name.startswith("GetResult")
]


@pytest.fixture
def server(server):
    for key in ("run/a", "run/b/c", "run/b/d/e", "running"):
        server.put("bucket", key, b"0123456789")
    return server


@pytest.fixture
def store(server):
    return Store("s3://bucket/run", server.store)


@pytest.fixture(params=["blocking", "awaited"])
def do(request, store):
    """Return what calls a method, or awaits its twin."""

    def do(name, *args, **options):
        if request.param == "blocking":
            return getattr(store, name)(*args, **options)
        return asyncio.run(getattr(store, f"{name}_async")(*args, **options))

    return do


def _name(error):
    return type(map_exception(error)).__module__, type(map_exception(error)).__name__


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.__name__)
def test_store_implements_every_obspec_protocol(protocol):
    methods = {name: method for name, method in vars(protocol).items() if not name.startswith("_")}
    assert methods
    for name, wanted in methods.items():
        mine = getattr(Store, name)
        assert inspect.iscoroutinefunction(mine) == inspect.iscoroutinefunction(wanted)
        takes, accepts = inspect.signature(wanted).parameters, inspect.signature(mine).parameters
        for parameter in takes.values():
            assert accepts[parameter.name].kind == parameter.kind
            assert (accepts[parameter.name].default is parameter.empty) == (parameter.default is parameter.empty)


def test_all_protocols_are_looked_at():
    assert len(PROTOCOLS) == 20


class TestReading:
    def test_an_object_is_described(self, do):
        found = do("head", "a")
        assert (found["path"], found["size"], found["version"]) == ("a", 10, None)
        assert found["e_tag"]
        assert isinstance(found["last_modified"], datetime)

    def test_an_object_is_read(self, do, server):
        result = do("get", "a")
        assert (result.meta["size"], result.range, bytes(result.buffer())) == (10, (0, 10), b"0123456789")
        assert b"".join(result) == b"0123456789"
        assert asyncio.run(result.buffer_async()) == b"0123456789"

        async def pieces():
            return [piece async for piece in result]

        assert asyncio.run(pieces()) == [b"0123456789"]
        server.put("bucket", "run/a", b"another")
        with pytest.raises(PenstockError) as caught:
            result.buffer()
        assert _name(caught.value) == ("obspec.exceptions", "PreconditionError")

    @pytest.mark.parametrize(
        ("wanted", "data"),
        [((2, 5), b"234"), ([8, 99], b"89"), ({"offset": 7}, b"789"), ({"suffix": 3}, b"789"), ({"suffix": 99}, None)],
        ids=str,
    )
    def test_parts_of_an_object(self, do, wanted, data):
        assert do("get", "a", options={"range": wanted}).buffer() == (data or b"0123456789")

    def test_conditions(self, do):
        meta = do("head", "a")
        for options in (
            {"if_match": meta["e_tag"]},
            {"if_match": f'"x", "{meta["e_tag"]}"'},
            {"if_match": "*"},
            {"if_none_match": "x"},
            {"if_modified_since": datetime(2000, 1, 1, tzinfo=UTC)},
            {"if_unmodified_since": datetime(2100, 1, 1, tzinfo=UTC)},
        ):
            assert do("get", "a", options=options).range == (0, 10)
        for options, name in (
            ({"if_match": "x"}, "PreconditionError"),
            ({"if_none_match": "*"}, "NotModifiedError"),
            ({"if_none_match": meta["e_tag"]}, "NotModifiedError"),
            ({"if_modified_since": datetime(2100, 1, 1, tzinfo=UTC)}, "NotModifiedError"),
            ({"if_unmodified_since": datetime(2000, 1, 1, tzinfo=UTC)}, "PreconditionError"),
            ({"version": "1"}, "NotSupportedError"),
        ):
            with pytest.raises(PenstockError) as caught:
                do("get", "a", options=options)
            assert _name(caught.value) == ("obspec.exceptions", name)
        assert do("get", "a", options={"head": True}).buffer() == b""

    def test_ranges(self, do, server):
        before = len(server.seen())
        assert do("get_range", "a", start=2, end=5) == b"234"
        assert do("get_ranges", "a", starts=[0, 5], lengths=[2, 3]) == [b"01", b"567"]
        assert [seen.method for seen in server.seen()[before:]] == ["GET"] * 3
        assert do("get_range", "a", start=8, length=99) == b"89"
        assert do("get_ranges", "a", starts=[0, 9], ends=[2, 99]) == [b"01", b"9"]
        for options in ({"end": 2}, {"length": 0}, {"end": 3, "length": 1}, {}):
            with pytest.raises(Unusable):
                do("get_range", "a", start=2, **options)
        with pytest.raises(Unusable):
            do("get_ranges", "a", starts=[1, 2], ends=[3])
        with pytest.raises(PenstockError):
            do("get_range", "a", start=10, end=12)

    def test_listings(self, do, store):
        found = do("list_with_delimiter")
        assert ([each["path"] for each in found["objects"]], found["common_prefixes"]) == (["a"], ["b"])
        assert do("list_with_delimiter", "b")["common_prefixes"] == ["b/d"]

        async def listed(**options):
            return [each["path"] async for page in store.list_async(**options) for each in page]

        for options, wanted in (
            ({}, ["a", "b/c", "b/d/e"]),
            ({"prefix": "b"}, ["b/c", "b/d/e"]),
            ({"offset": "b/c"}, ["b/d/e"]),
            ({"prefix": "no"}, []),
        ):
            assert [each["path"] for page in store.list(**options) for each in page] == wanted
            assert asyncio.run(listed(**options)) == wanted


class TestChanges:
    @pytest.mark.parametrize(
        "make",
        [
            lambda _: b"new",
            lambda _: np.frombuffer(b"new", np.uint8),
            lambda _: io.BytesIO(b"new"),
            lambda folder: folder / "file",
            lambda _: [b"n", b"ew"],
            lambda _: iter([b"n", memoryview(b"ew")]),
        ],
        ids=["bytes", "array", "file", "path", "list", "iterator"],
    )
    def test_an_object_is_written(self, do, server, tmp_path, make):
        (tmp_path / "file").write_bytes(b"new")
        before = len(server.seen())
        result = do("put", "x", make(tmp_path), attributes={"Content-Type": "text/plain", "run": "7"})
        assert [seen.method for seen in server.seen()[before:]] == ["PUT", "HEAD"]
        assert server.objects("bucket")["run/x"] == b"new"
        assert result == {"e_tag": do("head", "x")["e_tag"], "version": None}
        assert {"Content-Type": "text/plain", "run": "7"}.items() <= do("get", "x").attributes.items()

    def test_pieces_may_be_awaited(self, store, server):
        async def pieces(fail):
            yield b"n"
            if fail:
                raise ZeroDivisionError
            yield b"ew"

        with pytest.raises(ZeroDivisionError):
            asyncio.run(store.put_async("x", pieces(fail=True)))
        assert "run/x" not in server.objects("bucket")
        assert asyncio.run(store.put_async("x", pieces(fail=False)))["e_tag"]
        assert server.objects("bucket")["run/x"] == b"new"

    def test_conditions_of_a_write(self, do, server):
        with pytest.raises(AlreadyExists) as caught:
            do("put", "a", b"new", mode="create")
        assert _name(caught.value) == ("obspec.exceptions", "AlreadyExistsError")
        with pytest.raises(PenstockError) as caught:
            do("put", "a", b"new", mode={"e_tag": "x"})
        assert _name(caught.value) == ("obspec.exceptions", "PreconditionError")
        assert server.objects("bucket")["run/a"] == b"0123456789"
        do("put", "a", b"new", mode={"e_tag": do("head", "a")["e_tag"]})
        assert server.objects("bucket")["run/a"] == b"new"
        for wrong in ({"mode": "append"}, {"tags": {"a": "b"}}, {"attributes": {"Cache-Control": "x"}}, {"mode": {}}):
            with pytest.raises(Unusable):
                do("put", "a", b"new", **wrong)

    def test_objects_go_and_move(self, do, server):
        do("copy", "a", "copy")
        do("rename", "copy", "moved")
        with pytest.raises(AlreadyExists):
            do("copy", "a", "moved", overwrite=False)
        with pytest.raises(Unusable, match="overwrite must be True or False"):
            do("copy", "a", "moved", overwrite="no")
        do("delete", ["a", "b/c", "never"])
        do("delete", "b/d/e")
        assert sorted(server.objects("bucket")) == ["run/moved", "running"]


def test_errors_have_obspec_exception_names(do):
    for name, args in (("head", ()), ("get", ()), ("copy", ("to",)), ("get_ranges", ())):
        with pytest.raises(NotFound) as caught:
            do(name, "no", *args, **({"starts": [0], "ends": [2]} if name == "get_ranges" else {}))
        assert _name(caught.value) == ("obspec.exceptions", "NotFoundError")
        assert caught.value.url == "s3://bucket/run/no"
    for path in ("", "/a"):
        with pytest.raises(PenstockError) as caught:
            do("head", path)
        assert _name(caught.value) == ("obspec.exceptions", "InvalidPathError")


def test_two_loops_at_once(store):
    async def many():
        return await asyncio.gather(*(store.get_range_async("a", start=n, length=1) for n in range(10)))

    async def both():
        return await asyncio.gather(asyncio.to_thread(asyncio.run, many()), many())

    assert asyncio.run(both()) == [[b"%d" % n for n in range(10)]] * 2
    assert store.url == "s3://bucket/run/"


@pytest.mark.parametrize(
    ("wanted", "found"),
    [(None, (0, 10)), ((2, 5), (2, 5)), ([2, 99], (2, 10)), ({"offset": 3}, (3, 10)), ({"suffix": 3}, (7, 10))],
    ids=str,
)
def test_ranges(wanted, found):
    assert resolve_range(wanted, 10) == found


@pytest.mark.parametrize(
    "wrong", [(5, 5), (5, 2), (-1, 2), (10, 12), {"offset": 10}, {"suffix": 0}, {}, (1,), "1-2"], ids=str
)
def test_no_ranges(wrong):
    with pytest.raises(Unusable, match="range"):
        resolve_range(wrong, 10)


def test_missing_etag_and_modification_time_get_defaults():
    found = describe_object(ObjectMeta("root/a", 3), "a")
    assert (found["path"], found["e_tag"], found["last_modified"].timestamp()) == ("a", None, 0)


def test_error_renamed_for_obspec_keeps_its_message_and_attributes():
    error = NotFound("not there", url="s3://bucket/a", attempts=3, elapsed_s=1.5)
    error.code = "NoSuchKey"
    other = convert_error(error)
    assert (str(other), other.code, isinstance(other, NotFound), convert_error(other)) == (
        str(error),
        "NoSuchKey",
        True,
        other,
    )
    assert isinstance(map_exception(other), BaseError)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(Changed, "PreconditionError"), (Forbidden, "PermissionDeniedError"), (Unauthenticated, "UnauthenticatedError")],
)
def test_names(kind, name):
    with pytest.raises(PenstockError) as caught, rename_errors():
        raise kind("x")
    assert type(map_exception(caught.value)).__name__ == name
    assert type(caught.value.__cause__) is kind


@pytest.mark.parametrize("kind", [Throttled, Bug, KeyboardInterrupt])
def test_exception_without_obspec_name_keeps_its_type(kind):
    with pytest.raises(kind) as caught, rename_errors():
        raise kind("x")
    assert type(caught.value) is kind
