"""The public names and signatures are those on record: a change is seen, and accepted on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser

from tests import public_api
from tests.public_api import RECORD, changes, members, record, shared_arguments


def test_public_names_and_signatures_are_those_on_record():
    found = "\n".join(changes(RECORD.read_text("utf-8"), record()))
    assert not found, f"the public interface differs; to accept: `make api`, and a line in CHANGELOG.md\n{found}"


@dataclass
class Sample:
    size: int
    unit: str = "bytes"

    def read(self, start: int = 0, *, whole: bool = False) -> bytes:
        raise NotImplementedError

    @property
    def empty(self) -> bool:
        return not self.size

    def _private(self) -> None: ...


def test_a_class_is_recorded_with_its_constructor_methods_and_properties():
    assert members("m.Sample", Sample) == [
        "class m.Sample",
        "m.Sample(size: int, unit: str = 'bytes')",
        "m.Sample.read(self, start: int = 0, *, whole: bool = False) -> bytes",
        "m.Sample.empty",
    ]


def test_a_long_signature_takes_a_line_for_each_argument():
    def copy(source: str, *, destination_of_the_copy: str, number_of_attempts_at_most: int = 3, why: object = len): ...

    assert members("m.copy", copy)[0].splitlines() == [
        "m.copy(",
        "    source: str,",
        "    *,",
        "    destination_of_the_copy: str,",
        "    number_of_attempts_at_most: int = 3,",
        "    why: object = <built-in function len>,",
        ")",
    ]


def test_a_default_is_recorded_as_the_same_text_in_every_process():
    def made(unset=object(), words=frozenset({"b", "a", "c"})):  # noqa: B008  a sentinel
        return unset, words

    assert members("m.made", made) == ["m.made(unset=<object>, words=frozenset({'a', 'b', 'c'}))"]


class Table(HTMLParser):
    def __init__(self, text: str, *, depth: int = 1) -> None: ...

    def feed(self, data: str, limit: int = 0) -> None: ...

    def close(self) -> None: ...


def read(text: str, *, depth: int = 1) -> str: ...


def write(text: str, *, depth: int = 1, end: str = "") -> None: ...


def trim(text: str, *, depth: int = 2) -> str: ...


def test_an_argument_that_signatures_share_is_written_out_once():
    shared = shared_arguments([Table, read, write, trim])
    assert shared == {"text: str", "depth: int = 1"}
    assert members("m.write", write, shared) == ["m.write(text, *, depth, end: str = '') -> None"]


def test_an_argument_with_a_default_that_differs_is_written_out():
    shared = shared_arguments([Table, read, write, trim])
    assert members("m.trim", trim, shared) == ["m.trim(text, *, depth: int = 2) -> str"]


def test_shared_arguments_stand_together_in_a_long_signature():
    text = members("m." + "long" * 30, write, {"text: str", "depth: int = 1"})[0]
    assert text.splitlines()[1:] == ["    text, *, depth,", "    end: str = '',", ") -> None"]


def test_a_member_of_another_librarys_interface_is_recorded_by_its_name_and_added_arguments():
    assert members("m.Table", Table, {*()})[2:] == ["m.Table.feed(..., limit: int = 0)", "m.Table.close(...)"]
    assert members("m.Table", Table)[3] == "m.Table.close(self) -> None"


def test_another_librarys_constructor_is_recorded_by_its_name():
    class Inherits(HTMLParser):
        """A parser with the standard library's arguments."""

    assert members("m.Inherits", Inherits, {*()})[1] == "m.Inherits(...)"


def test_a_class_under_a_second_name_is_recorded_once(monkeypatch):
    monkeypatch.setattr(public_api, "public", lambda: iter([("m.Sample", Sample), ("m.deep.Sample", Sample)]))
    assert record().splitlines()[:2] == ["class m.Sample", "m.Sample(size: int, unit: str = 'bytes')"]
    assert record().splitlines()[-1] == "m.deep.Sample is m.Sample"


def test_changes_name_the_function_and_the_argument_that_differ():
    before = "m.copy(\n    source: str,\n    *,\n    size: int,\n)\nm.gone()\nm.same(x)\n"
    now = "m.copy(\n    source: str,\n    *,\n    size: int = 0,\n)\nm.new(x)\nm.same(x)\n"
    assert changes(before, now) == ["  m.copy", "-     size: int,", "+     size: int = 0,", "- m.gone()", "+ m.new(x)"]
    assert changes(now, now) == []


def test_arguments_in_another_order_are_a_change():
    assert len(changes("m.f(a, b)\n", "m.f(b, a)\n")) == 2
    assert len(changes("m.f(\n    a,\n    b,\n)\n", "m.f(\n    b,\n    a,\n)\n")) == 9
