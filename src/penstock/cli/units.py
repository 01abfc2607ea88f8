"""Times and sizes as written on a command line: ``90``, ``15m``, ``7d``; ``10k``, ``4MiB``."""

from __future__ import annotations

import re

from penstock.errors import Unusable

__all__ = ["seconds", "size_bytes"]

_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_PREFIXES = "kmgtp"


def seconds(text: str, flag: str) -> float:
    """Return the seconds of a number, alone or with ``s``, ``m``, ``min``, ``h``, ``d``, ``w``. Raises ``Unusable``."""
    found = _FORM.fullmatch(text.strip())
    if found is None or found[2].lower() not in _SECONDS:
        raise Unusable(f"{flag} {text!r}: write a number of seconds, or one with m, h, d or w, like 15m or 7d")
    return float(found[1]) * _SECONDS[found[2].lower()]


def size_bytes(text: str, flag: str) -> int:
    """Return the bytes of a number, alone or with a unit: ``k``, ``MiB`` etc. count by 1,024, ``MB`` etc. by 1,000.

    Raises ``Unusable``.
    """
    found = _FORM.fullmatch(text.strip())
    unit = found[2].lower() if found else "?"
    letter, rest = unit[:1], unit[1:]
    if unit in ("", "b"):
        factor = 1
    elif letter in _PREFIXES and rest in ("", "i", "ib", "b"):
        factor = (1000 if rest == "b" else 1024) ** (_PREFIXES.index(letter) + 1)
    else:
        raise Unusable(f"{flag} {text!r}: write a number of bytes, or one with k, M or G, like 10k or 4MiB")
    return int(float(found[1]) * factor) if found else 0
