"""A store takes its own options, neutral ones and those of a class it derives from, and refuses another's."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from penstock.engine.contracts.driver import Limits
from penstock.errors import ConfigError, MissingExtra
from penstock.options import RetryOptions, StoreOptions, WriteOptions
from penstock.stores.local.driver import Local
from penstock.stores.memory import Memory
from penstock.stores.s3.options import S3Options
from penstock.stores.s3.services import AWS
from penstock.stores.store import Opening, Store

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeOptions(S3Options):
    pool: str = "none"


class Lake(AWS):
    name = "Lake"
    schemes = ("lake",)
    options = LakeOptions


class Plain(Store):
    name = "plain"
    schemes = ("plain",)


S3, LAKE, PLAIN = AWS(), Lake(), Plain()


def test_own_options_are_taken_as_they_are():
    own = LakeOptions(pool="a")
    assert LAKE.take(own) is own
    assert S3.take(own) is own, "a class that derives from the provider's has all of its options"


def test_options_of_a_class_it_derives_from_become_its_own_with_the_same_parts():
    parts = {"retry": RetryOptions(patience_s=3)}
    assert S3.take(StoreOptions(**parts)) == S3Options(**parts)
    assert LAKE.take(S3Options(region="r", **parts)) == LakeOptions(region="r", **parts)


@pytest.mark.parametrize("provider", [Local(), Memory()], ids=["file", "memory"])
def test_a_store_without_a_network_takes_the_neutral_parts_of_any_options(provider):
    parts = {"retry": RetryOptions(patience_s=3)}
    taken = provider.take(S3Options(access_key="a", secret_key="b", **parts))
    assert (type(taken), taken) == (StoreOptions, StoreOptions(**parts)), "and keeps no key"


def test_another_providers_options_are_refused_by_the_name_of_the_right_class():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class OtherOptions(StoreOptions):
        project: str = ""

    with pytest.raises(ConfigError, match=r"s3:// takes no OtherOptions.*pass store=S3Options\(…\), or StoreOptions"):
        S3.take(OtherOptions())
    with pytest.raises(ConfigError, match=r"plain:// takes no S3Options.*pass store=StoreOptions"):
        PLAIN.take(S3Options())
    assert PLAIN.take(StoreOptions()) == StoreOptions()


def test_store_argument_of_wrong_type_is_refused():
    for wrong in ({"region": "r"}, {}, "profile", S3Options):
        with pytest.raises(ConfigError, match="store= must be StoreOptions or S3Options"):
            S3.take(wrong)


def test_parts_are_as_the_store_wants_them():
    small = StoreOptions(write=WriteOptions(part_bytes=MIB))
    with pytest.raises(ConfigError, match=f"part_bytes must be at least {5 * MIB} for S3, got {MIB}"):
        S3.take(small)
    assert Memory().take(small) == small

    class Tight(AWS):
        limits = Limits(most_part_bytes=8 * MIB)

    with pytest.raises(ConfigError, match=f"at most {8 * MIB} for S3"):
        Tight().take(StoreOptions())


def test_buckets_are_named_by_a_pattern_and_refused_in_words():
    class Short(Plain):
        buckets = "[a-z]{3}"
        bucket_rule = "three letters"

    assert Short().bucket_fault("abc") == ""
    assert Short().bucket_fault("a" * 100) == f"{'a' * 80!r} cannot be a bucket: three letters"


def test_missing_library_error_names_the_extra_to_install():
    class Nowhere(Plain):
        def open(self, _opening):
            import penstock_nowhere  # noqa: F401

    class Told(Nowhere):
        extra = "penstock[plain]"

    opening = Opening("plain", "bucket", StoreOptions(), None, {})
    with pytest.raises(MissingExtra, match=r"plain needs penstock_nowhere.*pip install penstock\[plain\] \[plain://bu"):
        Told().begin(opening)
    with pytest.raises(ModuleNotFoundError):
        Nowhere().begin(opening)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"schemes": "plain"}, "must be a tuple of lower-case schemes"),
        ({"schemes": ()}, "must be a tuple of lower-case schemes"),
        ({"schemes": ("Plain",)}, "must be a tuple of lower-case schemes"),
        ({"schemes": ("plain://",)}, "must be a tuple of lower-case schemes"),
        ({"options": dict}, "a frozen dataclass that derives from StoreOptions"),
        ({"options": StoreOptions()}, "a frozen dataclass that derives from StoreOptions"),
    ],
)
def test_a_store_that_could_not_work_is_refused_where_it_is_made(wrong, says):
    with pytest.raises(ConfigError, match=f"of plain .*{says}|of plain {says}"):
        type("Wrong", (Plain,), wrong)


def test_store_without_open_is_named_when_a_bucket_is_opened():
    class Shelf(Store):
        name, schemes = "the shelf", ("shelf",)

    with pytest.raises(NotImplementedError, match=r"Shelf must define open\(opening\)"):
        Shelf().begin(Opening("shelf", "bucket", StoreOptions(), None, {}))


def test_defaults_hold_where_given_options_say_nothing():
    class Mine(AWS):
        defaults = S3Options(region="eu", retry=RetryOptions(attempts=7))

    mine = Mine()
    assert mine.take(StoreOptions()) == mine.defaults
    taken = mine.take(S3Options(region="us", retry=RetryOptions(patience_s=3)))
    assert (taken.region, taken.retry) == ("us", RetryOptions(attempts=7, patience_s=3))
