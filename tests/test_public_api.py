"""The public names and signatures are those on record: a change is seen, and accepted on purpose."""

from __future__ import annotations

from dataclasses import dataclass

from tests.public_api import RECORD, changes, members, record


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


def test_changes_name_the_function_and_the_argument_that_differ():
    before = "m.copy(\n    source: str,\n    *,\n    size: int,\n)\nm.gone()\nm.same(x)\n"
    now = "m.copy(\n    source: str,\n    *,\n    size: int = 0,\n)\nm.new(x)\nm.same(x)\n"
    assert changes(before, now) == [
        "  m.copy",
        "-     size: int,",
        "+     size: int = 0,",
        "- m.gone()",
        "+ m.new(x)",
    ]
    assert changes(now, now) == []


def test_arguments_in_another_order_are_a_change():
    assert len(changes("m.f(a, b)\n", "m.f(b, a)\n")) == 2
    assert len(changes("m.f(\n    a,\n    b,\n)\n", "m.f(\n    b,\n    a,\n)\n")) == 9
