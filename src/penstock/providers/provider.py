"""What Penstock knows of one provider, as a value: a preset over another provider is ``dataclasses.replace``."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from penstock.config.profiles.overlay import overlaid
from penstock.errors import ConfigError, MissingExtra
from penstock.options import StoreOptions
from penstock.protocols.driver import Abilities
from penstock.protocols.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from penstock.protocols.driver import Driver
    from penstock.protocols.exchange import Transport

__all__ = ["Opening", "Provider", "Route", "bucket_names"]


def bucket_names(pattern: str, words: str) -> Callable[[str], str]:
    """Return a rule for names of buckets: they match ``pattern`` in full; ``words`` describes them in a refusal."""
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
    """One bucket that is to be opened.

    Attributes:
        provider: Whose it is; ``open`` passes ``abilities`` and ``limits`` on to its driver.
        scheme: The scheme of its URLs, one of the provider's.
        bucket: Its name, as ``split`` returned it.
        options: Options of the provider's class.
        settings: What ``Provider.resolve`` made of options and environment.
        environ: The environment that names the credentials: a copy, which does not change.

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
    """Where the paths of a profile lie, and the settings there: what ``Provider.resolve`` of a profile returns.

    Attributes:
        scheme: Of the store itself.
        bucket: Its bucket.
        base: What every key there begins with: empty, or ending in ``/``.
        settings: Of the bucket's own provider.

    """

    scheme: str
    bucket: str
    base: str
    settings: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A kind of store. All its functions but ``open`` make no request, and all are pure but for files they read.

    Attributes:
        name: Its name in messages.
        schemes: The schemes of its URLs, lower case. ``name+*`` is a family: all schemes ``name+…``.
        open: Return the driver of one bucket and the transport that carries it. Imports its dialect here, not before.
        split: Cut what follows ``scheme://`` into bucket and key. Both together, joined by ``/``, are the text again;
            a bucket may hold a ``/`` (``host/container``). Default: at the first ``/``.
        bucket_fault: Say why a bucket cannot be called so; empty where it can.
        key_fault: The same for a key, beyond ``limits.key_bytes``, NUL and invalid Unicode, which no store takes.
        limits: How large things may be.
        abilities: What its stores can do, as far as that is known before one has answered.
        options: Its class of options, which derives from ``StoreOptions``; ``StoreOptions`` where it has none.
        any_options: Take other providers' options too, for their neutral parts: for stores without a network, which
            stand at one end of a copy.
        resolve: Return, of options and environment, settings with nothing left to look up, and an identity. Both are
            hashable; the identity differs where options and environment name other credentials, and does not reveal
            them. A bucket is opened anew for another identity. Raises ``ConfigError``.
        variant: Return the provider that settings of ``resolve`` mean: a preset, where options or environment name one.
        example: Options as they are passed, for a user who wrote host or credentials into a URL.
        advice: Say what a URL of an unknown scheme should be here, as "write …"; empty where it says nothing.
        where: The settings that say where its servers are, option and variable, for texts, the endpoint first:
            ``endpoint= or X_ENDPOINT, region= or X_REGION``.
        extra: What to ``pip install`` where ``open`` misses a library: ``penstock[s3]``.
        defaults: Options that hold where those given say nothing: a profile's.
        target: Of a profile the URL that its keys are relative to, such as ``s3://bucket/base/``; empty for others.
        named: Return the provider of one bucket, where buckets are profiles of different stores.

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
        """Refuse what would fail later, or go unseen: ``ConfigError``."""
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

        Options of a class that it derives from, neutral ones first of all, become its defaults with these parts. Where
        the provider has ``defaults``, an option that is its class's default leaves them as they are.

        Raises:
            ConfigError: They are another provider's; a part of them cannot be used here.

        """
        mine = self.options
        given: type = type(options)
        if not issubclass(given, StoreOptions):
            message = f"store= takes StoreOptions or {mine.__name__}, not {given.__name__}"
            raise ConfigError(message)
        if mine is not given and not (mine is not StoreOptions and isinstance(options, mine)):
            if not (issubclass(mine, given) or self.any_options):
                remedy = f"pass store={mine.__name__}(…), or StoreOptions(…) for the parts that all stores have"
                message = f"{self.schemes[0]}:// takes no {given.__name__}, which are another provider's: {remedy}"
                raise ConfigError(message)
            shared = given if issubclass(mine, given) else StoreOptions
            options = mine(**{each.name: getattr(options, each.name) for each in fields(shared)})
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
        """Open a bucket. Raises ``MissingExtra`` where a library that it needs is not installed."""
        try:
            return self.open(opening)
        except ModuleNotFoundError as error:
            if not self.extra:
                raise
            message = f"{self.name} needs {error.name}, which is not installed: pip install {self.extra}"
            raise MissingExtra(message, url=opening.root) from error
