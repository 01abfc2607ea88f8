"""A reader who follows ``ps.open`` of a profile's URL through options and profiles turns few pages, and seldom back.

The reader opens a function once, at its first call. Not read: what ran before (the first opening of any profile), code
that ``dataclass`` writes, and properties, which are values. Then

- a stop is a call that enters a module from another one; consecutive stops in one module count once;
- a return is a stop in a module that was entered before;
- a climb is a stop to which a module calls that stands below it in ``ORDER``.

Before the passes were separated: 26 stops, 5 climbs, 15 returns.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import penstock as ps

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

# From the ground up: a module imports from those left of it.
ORDER = (
    *("options.private", "options.parts", "options.typed", "stores.urls", "stores.profiles.files"),
    *("stores.profiles.multistorage", "stores.profiles.project_file", "stores.profiles.sinks"),
    *("stores.profiles.lookup", "stores.profiles.store"),
)
FILE = """
[profiles.base]
url = "memory://walk/{name}"
retry = {{ attempts = 5 }}
[profiles.{name}]
extends = "base"
transport = {{ connections = 8, connect_timeout_s = 3 }}
"""


class Stop(NamedTuple):
    module: str
    climbs: bool


def module_of(frame: FrameType) -> str:
    name = str(frame.f_globals.get("__name__", "")).removeprefix("penstock.")
    written = not frame.f_code.co_filename.startswith("<")
    return name if name in ORDER and written else ""


def is_property(frame: FrameType) -> bool:
    owner, _, name = frame.f_code.co_qualname.rpartition(".")
    kind = frame.f_globals.get(owner)
    return isinstance(kind, type) and isinstance(vars(kind).get(name), property)


def walk(call: Callable[[], object]) -> list[Stop]:
    stops: list[Stop] = []
    read = set()

    def follow(frame: FrameType, event: str, _: object) -> None:
        module, code = module_of(frame), frame.f_code
        if event != "call" or not module or code in read or code.co_name.startswith("<") or is_property(frame):
            return
        read.add(code)
        caller = frame.f_back
        while caller is not None and not module_of(caller):
            caller = caller.f_back
        by = module if caller is None else module_of(caller)
        if (caller is None or by != module) and not (stops and stops[-1].module == module):
            stops.append(Stop(module, ORDER.index(by) < ORDER.index(module)))

    sys.setprofile(follow)
    try:
        call()
    finally:
        sys.setprofile(None)
    return stops


def open_profile(name: str) -> None:
    with ps.open(f"penstock://{name}/key") as file:
        assert file.read() == b"x"


def test_walk_through_a_profile_is_short_and_straight(tmp_path, monkeypatch):
    for name in ("before", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "penstock.toml").write_text(FILE.format(name=name))
        monkeypatch.chdir(tmp_path / name)
        with ps.open(f"memory://walk/{name}/key", "wb") as file:
            file.write(b"x")
        if name == "before":
            open_profile(name)
    stops = walk(lambda: open_profile("data"))
    modules = [each.module for each in stops]
    assert len(modules) <= 12, modules
    assert sum(each.climbs for each in stops) <= 4, stops
    assert len(modules) - len(set(modules)) <= 6, modules
