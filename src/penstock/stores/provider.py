"""Description of one kind of store, as a value: ``dataclasses.replace`` makes presets of another provider."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from penstock.engine.contracts.driver import Abilities, Limits
from penstock.errors import ConfigError, MissingExtra
from penstock.options import StoreOptions
from penstock.options.private import given
from penstock.options.typed import overlaid

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport

__all__ = ["Opening", "Provider", "Route", "bucket_names"]


def bucket_names(pattern: str, words: str) -> Callable[[str], str]:
    """Return a check of bucket names: they must match ``pattern`` in full; ``words`` describes the rule in messages."""
    matches = re.compile(pattern).fullmatch

    def fault(bucket: str) -> str:
        return "" if matches(bucket) else f"{bucket[:80]!r} cannot be a bucket: {words}"

    return fault


_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*(\+\*)?")


def _at_the_slash(rest: str) -> tuple[str, str]:
    bucket, _, key = rest.partition("/")
    return bucket, key


def _nothing(_options: StoreOptions, _environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:
    return None, None


def _no_variant(_settings: object) -> Provider | None:
    return None


def _no_words(_text: str) -> str:
    return ""


_PLAIN = bucket_names(r"[A-Za-z0-9._-]{1,255}", "1 to 255 letters, digits, '.', '-' and '_'")
_BOUNDLESS, _ABLE = Limits(), Abilities()


@dataclass(frozen=True, slots=True)
class Opening:
    """Bucket to open, with its provider, options, settings and environment.

    Attributes:
        provider: Provider of the bucket; ``open`` passes its ``abilities`` and ``limits`` on to the driver.
        scheme: URL scheme, one of the provider's.
        bucket: Name of the bucket, as ``split`` returned it.
        options: Options of the provider's class.
        settings: Settings that ``Provider.resolve`` made from options and environment.
        environ: Environment that holds the credentials: a copy that does not change.

    """

    provider: Provider
    scheme: str
    bucket: str
    options: Any
    settings: Any
    environ: Mapping[str, str]

    @property
    def root(self) -> str:
        """The bucket's URL, ending in ``/``."""
        return f"{self.scheme}://{self.bucket}/"


@dataclass(frozen=True, slots=True)
class Route:
    """Target of a profile's paths, with the settings there: the result of a profile's ``Provider.resolve``.

    Attributes:
        scheme: URL scheme of the target store.
        bucket: Bucket in the target store.
        base: Prefix of every key there: empty, or ending in ``/``.
        settings: Settings of the target store's own provider.

    """

    scheme: str
    bucket: str
    base: str
    settings: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Kind of store: its functions, limits and option class.

    Only ``open`` may make requests. All functions are pure, apart from files that they read.

    Attributes:
        name: Name in messages.
        schemes: URL schemes, lower case. ``name+*`` is a family: all schemes ``name+…``.
        open: Return the driver of one bucket and the transport for its requests. Imports the dialect only when called.
        split: Split the text after ``scheme://`` into bucket and key. Joined by ``/``, the two give the text again; a
            bucket may hold a ``/`` (``host/container``). Default: split at the first ``/``.
        bucket_fault: Return why a bucket name is invalid; empty if it is valid.
        key_fault: Return why a key is invalid; empty if it is valid. ``limits.key_bytes``, NUL and invalid Unicode are
            checked elsewhere, for all stores.
        limits: Size limits.
        abilities: Features of its stores, as far as they are known before the first answer.
        options: Option class, derived from ``StoreOptions``; ``StoreOptions`` itself for a provider without options.
        any_options: Accept other providers' options too, and use their neutral parts: for stores without a network,
            which stand at one end of a copy.
        resolve: Return settings with nothing left to look up, and an identity, from options and environment. Both are
            hashable. The identity changes when options and environment name other credentials, and does not reveal
            them. A bucket is opened again for a new identity. Raises ``ConfigError``.
        variant: Return the preset that options or environment select, from the settings of ``resolve``; else None.
        example: Options as users pass them, for messages about a host or credentials in a URL.
        advice: Return a hint for a URL of an unknown scheme, as "write …"; empty without a hint.
        where: Settings that locate its servers, option and variable, for messages, the endpoint first:
            ``endpoint= or X_ENDPOINT, region= or X_REGION``.
        extra: Argument of ``pip install`` for a library that ``open`` misses: ``penstock[s3]``.
        defaults: Options that apply where the caller gives none: those of a profile.
        target: URL that a profile's keys are relative to, such as ``s3://bucket/base/``; empty for other providers.
        named: Return the provider of one bucket. Set where buckets are profiles of different stores.

    """

    name: str
    schemes: tuple[str, ...]
    open: Callable[[Opening], tuple[Driver, Transport]]
    split: Callable[[str], tuple[str, str]] = _at_the_slash
    bucket_fault: Callable[[str], str] = _PLAIN
    key_fault: Callable[[str], str] = _no_words
    limits: Limits = _BOUNDLESS
    abilities: Abilities = _ABLE
    options: type[StoreOptions] = StoreOptions
    any_options: bool = False
    resolve: Callable[[Any, Mapping[str, str]], tuple[Hashable, Hashable]] = _nothing
    variant: Callable[[Any], Provider | None] = _no_variant
    example: str = ""
    advice: Callable[[str], str] = _no_words
    where: str = "endpoint="
    extra: str = ""
    defaults: StoreOptions | None = None
    target: str = ""
    named: Callable[[str], Provider] | None = None

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` for ``schemes`` or ``options`` that would fail later or go unnoticed."""
        schemes: object = self.schemes
        if not (isinstance(schemes, tuple) and schemes and all(_SCHEME.fullmatch(each) for each in schemes)):
            message = f"Provider.schemes of {self.name} are a tuple of lower-case schemes like ('s3',): {schemes!r}"
            raise ConfigError(message)
        kind: object = self.options
        params = getattr(kind, "__dataclass_params__", None) if isinstance(kind, type) else None
        if not (isinstance(kind, type) and issubclass(kind, StoreOptions) and params is not None and params.frozen):
            raise ConfigError(f"Provider.options of {self.name} is a frozen dataclass that derives from StoreOptions")

    def take(self, options: StoreOptions) -> StoreOptions:
        """Return ``options`` as options of this provider's class.

        Options of a base class, above all neutral ones, become this class's defaults with the parts that were given.
        If the provider has ``defaults``, they apply to options that were not given.

        Raises:
            ConfigError: The options are another provider's, or a part of them cannot be used here.

        """
        mine = self.options
        kind: type = type(options)
        if not issubclass(kind, StoreOptions):
            message = f"store= takes StoreOptions or {mine.__name__}, not {kind.__name__}"
            raise ConfigError(message)
        if mine is not kind and not (mine is not StoreOptions and isinstance(options, mine)):
            if not (issubclass(mine, kind) or self.any_options):
                remedy = f"pass store={mine.__name__}(…), or StoreOptions(…) for the parts that all stores have"
                message = f"{self.schemes[0]}:// takes no {kind.__name__}, which are another provider's: {remedy}"
                raise ConfigError(message)
            shared = kind if issubclass(mine, kind) else StoreOptions
            names = {each.name for each in fields(shared)}
            options = mine(**{name: value for name, value in given(options).items() if name in names})
        if self.defaults is not None:
            options = overlaid(self.defaults, options)
        self._check_parts(options)
        return options

    def _check_parts(self, options: StoreOptions) -> None:
        least, most, given = self.limits.least_part_bytes, self.limits.most_part_bytes, options.write.part_bytes
        if not least <= given <= most:
            bound = f"at least {least}" if given < least else f"at most {most}"
            raise ConfigError(f"WriteOptions.part_bytes must be {bound} for {self.name}, not {given}")

    def begin(self, opening: Opening) -> tuple[Driver, Transport]:
        """Open a bucket; raise ``MissingExtra`` if a library that it needs is not installed."""
        try:
            return self.open(opening)
        except ModuleNotFoundError as error:
            if not self.extra:
                raise
            message = f"{self.name} needs {error.name}, which is not installed: pip install {self.extra}"
            raise MissingExtra(message, url=opening.root) from error
