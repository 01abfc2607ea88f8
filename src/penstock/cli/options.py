"""Options that commands share: the store and how to access it, times and sizes, output as JSON."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from penstock.errors import ConfigError, Unusable
from penstock.jobs.parts.carriers import Ray
from penstock.options import StoreOptions
from penstock.options.parts import PART_KINDS
from penstock.options.typed import convert_value, overlaid, own_names, suggest_word
from penstock.source import Source
from penstock.stores.urls import Location, parse

Store = StoreOptions | str
Urls = Annotated[list[str], Argument(metavar="URL", help="s3://bucket/key, a local path, or a glob in quotes.")]
Prefix = Annotated[str, Argument(metavar="URL", help="s3://bucket/prefix, or a local path.")]
JsonOne = Annotated[bool, Option("--json", help="One JSON object.")]
JsonLines = Annotated[bool, Option("--json", help="One JSON object per line.")]
JsonUrls = Annotated[bool, Option("--json", help="One JSON object per line; safe for every key.")]
JsonObjects = Annotated[bool, Option("--json", help="One JSON object per line, for each object.")]
Long = Annotated[bool, Option("--long", "-l", help="Size, time of the last change and URL; --json has bytes.")]
DryRun = Annotated[bool, Option("--dry-run", help="Print the planned actions, one per line.")]
CacheFolder = Annotated[str | None, Option("--cache", metavar="DIR", help="The cache's directory.")]
Processes = Annotated[
    int | None,
    Option(
        "--processes",
        metavar="N",
        min=1,
        max=64,
        show_default=False,
        help="Processes that copy small objects. Default: as many as processors, up to 4.",
    ),
]
PartProcesses = Annotated[
    int | None,
    Option("--processes", metavar="N", min=1, max=1024, help="Processes that share the parts. Default: this one."),
]

SourceTree = Annotated[
    str, Argument(metavar="SOURCE", help="s3://bucket/prefix, or a directory; a / at its end makes no difference.")
]
DestTree = Annotated[
    str, Argument(metavar="DEST", help="s3://bucket/prefix, or a directory; a / at its end makes no difference.")
]
IncludeSource = Annotated[
    list[str] | None, Option("--include", metavar="GLOB", help="Only keys below SOURCE like this.")
]
IncludeUrl = Annotated[list[str] | None, Option("--include", metavar="GLOB", help="Only keys below URL like this.")]
Exclude = Annotated[list[str] | None, Option("--exclude", metavar="GLOB", help="No keys like this.")]
Checksum = Annotated[bool, Option("--checksum", help="Compare contents, not times.")]
ObjectReport = Annotated[str | None, Option("--report", metavar="FILE", help="Write a line of JSON for each object.")]
Part = Annotated[
    str | None, Option("--part", metavar="N/COUNT", help="Only this process's share of the parts, as 3/16.")
]
JobFolder = Annotated[str | None, Option("--job", metavar="URL", help="Folder for the records of parts.")]
OnRay = Annotated[
    str | None, Option("--ray", metavar="ADDRESS", help="Do the parts on this Ray cluster: auto, or ray://host:10001.")
]

# Parameters of commands that are URLs.
_PLACES = ("url", "urls", "source", "sources", "dest")
_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_PREFIXES = "kmgtp"


@dataclass(frozen=True)
class Given:
    """Store settings from a command line; ``options`` holds the option as the user wrote it, its name and its value."""

    profile: str = ""
    options: tuple[tuple[str, str, object], ...] = ()


def with_store(command: Callable[..., None]) -> Callable[..., None]:
    """Add the store options to ``command``, which receives them as the keyword ``store``."""

    @wraps(command)
    def settle(*, store: Given, **given: Any) -> None:  # noqa: ANN401  any argument of the command
        command(store=settle_store(store, _urls(given)), **given)

    return with_options("store", _collect_given)(settle)


def _collect_given(
    *,
    store: Annotated[
        str | None, Option("--store", metavar="PROFILE", help="A profile of penstock.toml; default: the URL's.")
    ] = None,
    option: Annotated[
        list[str] | None,
        Option("--option", "-o", metavar="KEY=VALUE", help="An option of the store, as region=eu or retry.attempts=3."),
    ] = None,
    endpoint: Annotated[str | None, Option(help="A server's URL; default: the environment, the provider.")] = None,
    region: Annotated[str | None, Option(help="Signing region; default: the environment, the provider.")] = None,
    profile: Annotated[str | None, Option(help="A profile of the shared AWS files.")] = None,
    anonymous: Annotated[bool, Option("--anonymous", help="Send unsigned requests: for public data.")] = False,
) -> Given:
    flags = {"endpoint": endpoint, "region": region, "profile": profile, "anonymous": anonymous or None}
    own = [(f"--{name}", name, value) for name, value in flags.items() if value is not None]
    return Given(store or "", tuple(own + [_pair(each) for each in option or ()]))


def _pair(text: str) -> tuple[str, str, object]:
    name, mark, value = text.partition("=")
    if not mark:
        raise Unusable(f"-o {text}: write -o KEY=VALUE, as in -o region=eu-west-1")
    return f"-o {name}", name, value


def _urls(given: Mapping[str, Any]) -> list[str]:
    found = [given[name] for name in _PLACES if name in given]
    return [url for each in found for url in ([each] if isinstance(each, str) else each)]


def settle_store(given: Given, urls: Iterable[str]) -> StoreOptions | str:
    """Return the ``store=`` argument for a command's URLs; no request.

    Raises:
        ConfigError: An option that the providers of the URLs do not have, or an invalid value; options of one provider
            for URLs of two providers.
    """
    if not given.options:
        return given.profile or StoreOptions()
    places = [parse(url) for url in urls]
    kind = _find_options_class(places)
    if kind is None:
        wrong = next((flag for flag, name, _ in given.options if name.partition(".")[0] not in PART_KINDS), "")
        if wrong:
            names = " and ".join(dict.fromkeys(f"{each.scheme}://" for each in places if not each.store.any_options))
            raise ConfigError(
                f"{wrong} belongs to one provider, but the URLs are of {names}: give each a profile, penstock://…"
            )
    explicit = _make_options(kind or StoreOptions, given)
    if not given.profile:
        return explicit
    # A URL of a profile already has its options: refused as everywhere. Options of any store count least.
    ordered = sorted(places, key=lambda each: each.store.any_options)
    bases = [Source(each, given.profile).options for each in ordered]
    return overlaid(bases[0], explicit) if bases else explicit


def _find_options_class(places: list[Location]) -> type[StoreOptions] | None:
    """Return the options class of all places; None if they have different classes."""
    stores = [each.store for each in places]
    # Stores that accept any store's options count only if there are no others.
    kinds = {each.options for each in stores if not each.any_options} or {each.options for each in stores}
    return None if len(kinds) > 1 else next(iter(kinds), StoreOptions)


def _make_options(kind: type[StoreOptions], given: Given) -> StoreOptions:
    values: dict[str, Any] = {}
    parts: dict[str, dict[str, object]] = {}
    for flag, name, value in given.options:
        table, dot, inner = name.partition(".")
        if dot and table in PART_KINDS:
            parts.setdefault(table, {})[inner] = _value(PART_KINDS[table], flag, inner, value)
        else:
            values[name] = _value(kind, flag, name, value)
    return kind(**values, **{table: PART_KINDS[table](**own) for table, own in parts.items()})


def _value(kind: type, flag: str, name: str, value: object) -> object:
    own = own_names(kind)
    if name not in own:
        known = [*own, *(f"{part}.…" for part in PART_KINDS)] if issubclass(kind, StoreOptions) else own
        raise ConfigError(
            f"{flag}: {kind.__name__} has no option {name!r}{suggest_word(name, own, '; it has ' + ', '.join(known))}"
        )
    field = next(each for each in fields(kind) if each.name == name)
    if not field.repr and (name != "proxy" or "@" in str(value)):
        raise ConfigError(f"{flag}: every user of a machine sees command lines, so set the environment or a profile")
    return convert_value(field, value, flag)


def with_options(keyword: str, make: Callable[..., object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the options of ``make`` to a command and passes its result as ``keyword``."""
    options = signature(make).parameters.values()

    def fold(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def complete(**given: Any) -> None:  # noqa: ANN401  any argument of the command
            made = make(**{each.name: given.pop(each.name) for each in options})
            command(**{keyword: made}, **given)

        own = [each for each in signature(command).parameters.values() if each.name != keyword]
        complete.__signature__ = signature(command).replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        complete.__annotations__ = {each.name: each.annotation for each in (*own, *options)}
        return complete

    return fold


def cluster(address: str | None) -> Ray | None:
    return None if address is None else Ray(address=address)


def in_job(job: str | None, part: str | None, ray: str | None, processes: int | None = None) -> dict[str, Any]:
    """Return the arguments of a function that does its work in parts, if a job is wanted."""
    given = {"job": job, "part": part, "on": cluster(ray), "processes": processes}
    return {name: value for name, value in given.items() if value is not None}


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


def import_function(name: str) -> Callable[..., Any]:
    """Return the object that MODULE:NAME names, found as by ``python -m``."""
    module, mark, path = name.partition(":")
    if not (mark and module and path):
        raise Unusable(f"the function must be MODULE:NAME, such as tokenise:encode, got {name!r}")
    # At the end: no file in the current directory stands in for an installed module.
    sys.path.append(str(Path.cwd()))
    try:
        found: Any = import_module(module)
        for each in path.split("."):
            found = getattr(found, each)
    except (ImportError, AttributeError) as error:
        raise Unusable(f"cannot find the function {name}: {error}") from error
    return found  # type: ignore[no-any-return]
