"""Options from a file, a command line or the environment: values expanded, converted by type, and overlaid.

``expand_values`` replaces variables, ``make_options`` makes options of values, ``overlaid`` puts given options over
those of a profile. ``cache_options`` are the settings of the cache: those of a store's options, else the environment's.
"""

from __future__ import annotations

import os
import re
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from penstock.errors import ConfigError, kind_of
from penstock.options import CacheOptions
from penstock.options.parts import PART_KINDS
from penstock.options.private import given

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from dataclasses import Field

    from penstock.options import StoreOptions

    Lookup = Callable[[str], str | None]

K = TypeVar("K")
S = TypeVar("S", bound="StoreOptions")

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_SIZE = re.compile(r"([0-9]+)\s*([KMGT]i?B?)", re.IGNORECASE)
_SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_CONTAINERS = ("Literal[", "tuple[str, ...", "Mapping[str, str]")
_LITERAL = re.compile(r"""["']([^"']*)["']""")
# Error code for a value that cannot be expanded here, but may be elsewhere.
UNSET = "VariableUnset"
_MOST_SECRET_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a profile; its repr does not show it.

    Attributes:
        raw: The value as written in the file, or expanded.
        origin: File, line and key: ``/home/me/penstock.toml:7: profiles.data.options.region``.
        folder: Directory of the file, where relative paths start.
        foreign: Whether the value is from a project's file, which may belong to someone else.
    """

    raw: object = field(repr=False)
    origin: str
    folder: str = ""
    foreign: bool = False


def suggest_word(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return ``: did you mean …?`` with the closest known word, or ``otherwise`` if none is close."""
    near = get_close_matches(word, list(known), 1, cutoff=0.6)
    return f": did you mean {near[0]!r}?" if near else otherwise


def explain_attribute(owner: object, name: str, instead: Mapping[str, str]) -> NoReturn:
    """Raise ``AttributeError`` for an attribute of ``owner`` that is missing, with the advice that ``instead`` has.

    For ``__getattr__``. A property that raises ``AttributeError`` itself raises it again.
    """
    if name in instead:
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}: {instead[name]}")
    object.__getattribute__(owner, name)
    raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")


def own_names(kind: type) -> list[str]:
    """Return the names of the options of a provider's class, without the parts that all stores have."""
    return [each.name for each in fields(kind) if each.init and each.name not in PART_KINDS]


def make_options(kind: type[K], values: Mapping[str, Value], lookup: Lookup, **parts: object) -> K:
    """Return options of ``kind`` with the values, expanded and converted, and with ``parts`` unchanged.

    Errors name the value's origin, and do not quote the value of an option that may be a secret.
    """
    known = {each.name: each for each in fields(kind) if each.init}  # type: ignore[arg-type]  # all kinds are dataclasses
    for name, value in values.items():
        if name not in known or name in parts:
            allowed = [each for each in known if each not in parts]
            raise ConfigError(f"{value.origin}: {kind.__name__} has no option {name!r}{_suggest_option(name, allowed)}")
    expanded = expand_values(values, lookup)
    given = {name: convert_value(known[name], each.raw, each.origin) for name, each in expanded.items()}
    try:
        return kind(**given, **parts)
    except ConfigError as error:
        origin = next(iter(values.values())).origin if values else ""
        where = next((each.origin for name, each in values.items() if name in error.message), origin)
        raise ConfigError(f"{where}: {error.message}" if where else error.message) from None


def make_store_options(kind: type[S], values: Mapping[str, Value], lookup: Lookup) -> S:
    """Return options of a store's class from a profile's values by ``table.key``; a cache's path starts at its file."""
    tables: dict[str, dict[str, Value]] = {}
    for key, value in values.items():
        table, _, name = key.partition(".")
        tables.setdefault(table, {})[name] = value
    parts: dict[str, Any] = {
        part: make_options(each, tables[part], lookup) for part, each in PART_KINDS.items() if part in tables
    }
    if (place := values.get("cache.path")) is not None:
        parts["cache"] = replace(parts["cache"], path=local_path(parts["cache"].path, place))
    return make_options(kind, tables.get("options", {}), lookup, **parts)


def local_path(path: str, value: Value) -> str:
    return os.path.join(value.folder, os.path.expanduser(path))  # noqa: PTH111, PTH118  pathlib drops slashes


def _suggest_option(name: str, known: list[str]) -> str:
    if name in PART_KINDS:
        return f": {name} is a separate table, beside options"
    return suggest_word(name, known, f"; it has {', '.join(known)}" if known else "")


def expand_values(values: Mapping[str, Value], lookup: Lookup) -> dict[str, Value]:
    """Return the values with variables replaced, and ``{file = "path"}`` replaced by the contents of that file."""
    return {key: replace(each, raw=_expand_value(each, lookup)) for key, each in values.items()}


def _expand_value(value: Value, lookup: Lookup) -> object:
    try:
        return _expand_raw(value.raw, lookup, value)
    except Unset as error:
        refused = ConfigError(f"{value.origin}: {error}")
        refused.code = UNSET
        raise refused from None


def _expand_raw(raw: object, lookup: Lookup, value: Value) -> object:
    if isinstance(raw, str):
        return expand(raw, lookup)
    if isinstance(raw, list):
        return [_expand_raw(each, lookup, value) for each in raw]
    if isinstance(raw, dict) and set(raw) == {"file"} and isinstance(raw["file"], str):
        return read_secret(expand(raw["file"], lookup), value)
    if isinstance(raw, dict):
        return {name: _expand_raw(each, lookup, value) for name, each in raw.items()}
    return raw


def read_secret(path: str, value: Value) -> str:
    """Return the text of a file, without the line break at its end; ``path`` may be relative to ``value.folder``."""
    place = Path(value.folder, Path(path).expanduser())
    try:
        with place.open(encoding="utf-8") as stream:
            text = stream.read(_MOST_SECRET_BYTES + 1).removesuffix("\n").removesuffix("\r")
        if 0 < len(text) <= _MOST_SECRET_BYTES:
            return text
        fault = "is not a secret: more than 64 KiB" if text else "is empty"
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        fault = "is not UTF-8 text"
    raise ConfigError(f"{value.origin}: the file {place} {fault}")


def convert_value(field: Field[Any], value: object, origin: str) -> object:
    """Return a value converted to a field's type; that of a field ``…_bytes`` may have a unit: ``"64 MiB"``."""
    kinds = _kinds(str(field.type))
    for kind in kinds:
        found = _as(kind, value, field)
        if found is not MISSING:
            return found
    wanted = " or ".join(dict.fromkeys(map(_describe_type, kinds))) or "set in a program, not in a file"
    public = field.repr and (field.metadata.get("public", False) or not str(field.type).startswith("str"))
    shown = f", got {value!r}"[:100] if public else ""
    raise ConfigError(f"{origin} must be {wanted}{shown}")


def _kinds(annotation: str) -> list[str]:
    """Return the types of a union, without those that a file cannot hold.

    The text of an annotation is read, because ``typing.get_type_hints`` would need every name in it at run time, also
    those that a class of a third party imports for type checkers only.
    """
    parts, depth, last = [], 0, 0
    for at, char in enumerate(f"{annotation}|"):
        depth += (char == "[") - (char == "]")
        if char == "|" and not depth:
            parts.append(annotation[last:at].strip())
            last = at + 1
    return [each for each in parts if each in _SIMPLE or each.startswith(_CONTAINERS)]


def _as(kind: str, value: object, field: Field[Any]) -> object:
    text, truth = isinstance(value, str), isinstance(value, bool)
    if kind == "str":
        return value if text else MISSING
    if kind == "bool":
        word = value.lower() if isinstance(value, str) else ""
        return value if truth else True if word in _TRUE else False if word in _FALSE else MISSING
    if kind in ("int", "float"):
        if truth:
            return MISSING
        return (
            _parse_float(value) if kind == "float" else parse_whole_number(value, sized=field.name.endswith("_bytes"))
        )
    if kind.startswith("Literal["):
        return value if value in _LITERAL.findall(kind) else MISSING
    return _several(kind, value)


def _several(kind: str, value: object) -> object:
    if kind.startswith("Mapping["):
        return value if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()) else MISSING
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    return MISSING


def parse_whole_number(value: object, *, sized: bool) -> object:
    """Return a whole number, or with ``sized`` also a size such as ``8GiB``; ``MISSING`` for any other value."""
    if isinstance(value, int):
        return value
    text = value.strip() if isinstance(value, str) else ""
    if text.isascii() and text.isdecimal():
        return int(text)
    size = _SIZE.fullmatch(text) if sized else None
    return int(size[1]) * _SIZES[size[2][0].lower()] if size else MISSING


def _parse_float(value: object) -> object:
    try:
        return float(value) if isinstance(value, (int, float, str)) else MISSING
    except ValueError:
        return MISSING


_SIMPLE = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false"}


def _describe_type(kind: str) -> str:
    if kind.startswith("Literal["):
        return " or ".join(map(repr, _LITERAL.findall(kind)))
    return _SIMPLE.get(kind, "a table of texts" if kind.startswith("Mapping[") else "a list of texts")


def literal_secrets(kind: type, values: Mapping[str, Value]) -> list[str]:
    """Return the secret options of a table whose values are in the file itself, not in a variable or another file."""
    secret = {f"options.{each.name}" for each in fields(kind) if not each.repr}
    literal = [key for key, each in values.items() if isinstance(each.raw, str) and "${" not in each.raw]
    return [key.partition(".")[2] for key in literal if key in secret]


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Unset(ValueError):
    """Error for a text that cannot be expanded; its message says why, and quotes only names of variables."""


def expand(text: str, lookup: Lookup) -> str:
    """Return ``text`` with variables replaced by their values, which are not expanded again.

    ``${NAME}`` is the value of a variable; ``${NAME:-default}`` is ``default`` where the variable is unset or empty, as
    in a POSIX shell; defaults may hold variables themselves. ``$${`` stands for a literal ``${``. Any other ``$`` stays
    unchanged. Raises ``Unset``.
    """
    found, at = _until(text, 0, lookup, nested=False)
    assert at == len(text)  # noqa: S101  an invariant
    return found


def _until(text: str, at: int, lookup: Lookup, *, nested: bool) -> tuple[str, int]:
    """Expand from ``at`` to the end, or to the ``}`` that closes a default; return the text and its end position."""
    pieces: list[str] = []
    while at < len(text):
        if text.startswith("$${", at):
            pieces.append("${")
            at += 3
        elif text.startswith("${", at):
            piece, at = _variable(text, at, lookup)
            pieces.append(piece)
        elif nested and text[at] == "}":
            break
        else:
            pieces.append(text[at])
            at += 1
    return "".join(pieces), at


def _variable(text: str, at: int, lookup: Lookup) -> tuple[str, int]:
    name = _NAME.match(text, at + 2)
    if name is None:
        raise Unset("'${' must be followed by the name of a variable: write ${NAME}, or $${ for a literal '${'")
    default, at = None, name.end()
    if text.startswith(":-", at):
        # A default that is not needed may name variables that are not set.
        wanted = lookup(name[0])
        default, at = _until(text, at + 2, (lambda _: "unused") if wanted else lookup, nested=True)
    if not text.startswith("}", at):
        raise Unset(f"'${{{name[0]}' is not closed: write ${{{name[0]}}} or ${{{name[0]}:-default}}")
    value = lookup(name[0]) or default
    if value is None:
        raise Unset(f"the variable {name[0]} is not set: set it, or write ${{{name[0]}:-default}}")
    return value, at + 1


def overlaid(under: K, over: K) -> K:
    """Return ``under`` with every option given in ``over``, even if equal to its default; also in its parts."""
    values = given(over)
    parts = {
        name: overlaid(getattr(under, name), value)
        for name, value in values.items()
        if is_dataclass(value) and getattr(under, name) is not None
    }
    names = frozenset((*given(under), *values))
    return replace(under, **(values | parts | {"_given": names}))  # type: ignore[type-var]


CACHE_VARIABLE = "PENSTOCK_CACHE"  # without it, only options name a cache
# Variable -> option of ``CacheOptions``.
CACHE_VARIABLES: Mapping[str, str] = {
    CACHE_VARIABLE: "path",
    "PENSTOCK_CACHE_SIZE": "size_bytes",
    "PENSTOCK_CACHE_MODE": "mode",
    "PENSTOCK_CACHE_TTL": "ttl_s",
    "PENSTOCK_CACHE_MEMORY": "memory_bytes",
}


def cache_options(chosen: CacheOptions | None, environ: Mapping[str, str] = os.environ) -> CacheOptions | None:
    """Return the fully resolved options of the cache; None without a cache, also in the mode ``off``.

    ``PENSTOCK_CACHE`` names the cache directory of every store whose options have no cache (``1``: the default
    directory; ``0`` or empty: no cache). ``PENSTOCK_CACHE_SIZE=200GiB``, ``…_MODE``, ``…_TTL`` (seconds) and
    ``…_MEMORY`` set the other options, of such a cache and wherever an option was not given.
    """
    if chosen is not None and not isinstance(chosen, CacheOptions):
        raise ConfigError(f"a cache must be a directory or CacheOptions(path=…), got {kind_of(chosen)}")
    named = environ.get(CACHE_VARIABLE, "")
    if chosen is None and named.lower() in ("", *_FALSE):
        return None
    options = CacheOptions() if chosen is None else chosen
    values = {
        option: Value(text, variable)
        for variable, option in CACHE_VARIABLES.items()
        if option != "path" and (text := environ.get(variable)) and option not in given(options)
    }
    own = {each.name: getattr(options, each.name) for each in fields(options) if each.init and each.name not in values}
    options = make_options(CacheOptions, values, environ.get, **own)
    if options.mode == "off":
        return None
    path = os.path.expanduser(options.path or cache_folder(environ))  # noqa: PTH111  the path stays a str
    return replace(options, path=os.path.abspath(path))  # noqa: PTH100  links are not resolved


def with_cache(options: S, environ: Mapping[str, str] = os.environ) -> S:
    """Return ``options`` with the resolved options of the cache: see ``cache_options``."""
    cache = cache_options(options.cache, environ)
    return options if cache == options.cache else replace(options, cache=cache)


def cache_folder(environ: Mapping[str, str] = os.environ) -> str:
    """Return the cache directory for options that name none: that of ``PENSTOCK_CACHE``, else a folder of the user.

    That folder is ``$XDG_CACHE_HOME/penstock``, by default ``~/.cache/penstock``.
    """
    named = environ.get(CACHE_VARIABLE, "")
    if named and named.lower() not in (*_TRUE, *_FALSE):
        return os.path.expanduser(named)  # noqa: PTH111  the path stays a str
    home = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or "~", ".cache")  # noqa: PTH118
    folder = os.path.expanduser(home)  # noqa: PTH111
    if not os.path.isabs(folder):  # noqa: PTH117
        raise ConfigError(
            "no home directory found for the cache: choose a directory with CacheOptions(path=…) or PENSTOCK_CACHE"
        )
    return os.path.join(folder, "penstock")  # noqa: PTH118
