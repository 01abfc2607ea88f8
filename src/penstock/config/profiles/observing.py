"""Which sinks the values of a profile name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.config.profiles.sinks import NamedSinks
from penstock.config.profiles.table import meant
from penstock.config.profiles.typed import expanded
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.config.profiles.table import Value

__all__ = ["WORDS", "named_sinks"]

WORDS = ("jsonl", "chrome", "log", "otel", "prometheus")  # what they mean, ``observe/environment`` says
_FILES = ("jsonl", "chrome")


def named_sinks(values: Mapping[str, Value], lookup: Callable[[str], str | None]) -> NamedSinks:
    """Return the sinks that a profile's values name: a text with commas between, or a list of texts.

    Raises:
        ConfigError: A word that names none, or a variable that is not set; the text names file, line and key.

    """
    words: tuple[str, ...] = ()
    if (value := values.get("observe")) is not None:
        found = expanded(value, lookup)
        listed = found.split(",") if isinstance(found, str) else found
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise ConfigError(f"{value.origin} is a list of texts, such as ['jsonl:events.jsonl']")
        words = tuple(_word(each.strip(), value) for each in listed if each.strip())
    telemetry = {
        key.partition(".")[2]: str(expanded(each, lookup))
        for key, each in values.items()
        if key.startswith("telemetry.")
    }
    return NamedSinks(words, tuple(telemetry.items()))


def _word(word: str, value: Value) -> str:
    kind, _, rest = word.partition(":")
    if kind not in WORDS:
        raise ConfigError(
            f"{value.origin}: {kind!r} names no sink{meant(kind, WORDS, '; there are ' + ', '.join(WORDS))}"
        )
    if kind in _FILES and rest:
        return f"{kind}:{os.path.join(value.folder, os.path.expanduser(rest))}"  # noqa: PTH111, PTH118  it stays a text
    return word
