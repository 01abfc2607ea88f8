"""Base class of all stores: one subclass for each kind of store, one instance of it for the whole process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from penstock.engine.contracts.driver import Abilities, Limits
from penstock.errors import ConfigError, MissingExtra, kind_of
from penstock.options import StoreOptions
from penstock.options.private import given
from penstock.options.typed import overlaid

if TYPE_CHECKING:
    from collections.abc import Hashable

    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport

__all__ = ["Opening", "Route", "Store"]

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*(\+\*)?")


@dataclass(frozen=True, slots=True)
class Opening:
    """Bucket to open, with its options, settings and environment.

    Attributes:
        scheme: URL scheme, one of the store's.
        bucket: Name of the bucket, as ``Store.split`` returned it.
        options: Options of the store's class.
        settings: Settings that ``Store.resolve`` made from options and environment.
        environ: Environment that holds the credentials: a copy that does not change.

    Example:
        >>> from penstock.stores.store import Opening
        >>> Opening("s3", "bucket", options=None, settings=None, environ={}).root
        's3://bucket/'
    """

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
    """Target of a profile's paths, with the settings there: the result of a profile's ``Store.resolve``.

    Attributes:
        scheme: URL scheme of the target store.
        bucket: Bucket in the target store.
        base: Prefix of every key there: empty, or ending in ``/``.
        settings: Settings of the target store itself.

    Example:
        >>> from penstock.stores.store import Route
        >>> Route("s3", "bucket", base="train/", settings=None).base
        'train/'
    """

    scheme: str
    bucket: str
    base: str
    settings: Hashable


class Store:
    """Kind of store. A subclass needs ``name``, ``schemes`` and ``open``; the rest has defaults.

    Only ``open`` may make requests. All methods are pure, apart from files that they read.

    Attributes:
        name: Name in messages.
        schemes: URL schemes, lower case. ``name+*`` is a family: all schemes ``name+…``.
        limits: Size limits.
        abilities: Features of its buckets, as far as they are known before the first answer.
        options: Option class, derived from ``StoreOptions``; ``StoreOptions`` itself for a store without options.
        any_options: Accept other stores' options too, and use their neutral parts: for stores without a network, which
            stand at one end of a copy.
        buckets: Regular expression that bucket names must match in full.
        bucket_rule: The same rule in words, for messages.
        example: Options as users pass them, for messages about a host or credentials in a URL.
        where: Settings that locate its servers, option and variable, for messages, the endpoint first:
            ``endpoint= or X_ENDPOINT, region= or X_REGION``.
        extra: Argument of ``pip install`` for a library that ``open`` misses: ``penstock[s3]``.
        profiles: Buckets are profiles of different stores; ``named`` returns the store of one.
        defaults: Options that apply where the caller gives none: those of a profile.
        target: URL that a profile's keys are relative to, such as ``s3://bucket/base/``; empty for other stores.

    Example:
        >>> from penstock.stores.store import Store
        >>> class Shelf(Store):
        ...     name, schemes = "the shelf", ("shelf",)
        >>> Shelf().split("bucket/a/key")
        ('bucket', 'a/key')
    """

    name: str = ""
    schemes: tuple[str, ...] = ()
    limits: Limits = Limits()
    abilities: Abilities = Abilities()
    options: type[StoreOptions] = StoreOptions
    any_options: bool = False
    buckets: str = r"[A-Za-z0-9._-]{1,255}"
    bucket_rule: str = "1 to 255 letters, digits, '.', '-' and '_'"
    example: str = ""
    where: str = "endpoint="
    extra: str = ""
    profiles: bool = False
    defaults: StoreOptions | None = None
    target: str = ""
    _fits = re.compile(buckets).fullmatch

    def __init_subclass__(cls) -> None:
        """Raise ``ConfigError`` for ``schemes`` or ``options`` that would fail later or go unnoticed."""
        super().__init_subclass__()
        cls._fits = re.compile(cls.buckets).fullmatch
        schemes: object = cls.__dict__.get("schemes", ("inherited",))
        if not (isinstance(schemes, tuple) and schemes and all(_SCHEME.fullmatch(each) for each in schemes)):
            message = f"Store.schemes of {cls.name} must be a tuple of lower-case schemes like ('s3',): {schemes!r}"
            raise ConfigError(message)
        kind: object = cls.options
        params = getattr(kind, "__dataclass_params__", None) if isinstance(kind, type) else None
        if not (isinstance(kind, type) and issubclass(kind, StoreOptions) and params is not None and params.frozen):
            raise ConfigError(f"Store.options of {cls.name} must be a frozen dataclass that derives from StoreOptions")

    def open(self, opening: Opening) -> tuple[Driver, Transport]:
        """Return the driver of one bucket and the transport for its requests; import the dialect only here.

        Args:
            opening: Bucket, with options and settings.
        """
        raise NotImplementedError(f"{type(self).__name__} must define open(opening)")

    def split(self, rest: str) -> tuple[str, str]:
        """Split the text after ``scheme://`` into bucket and key.

        Args:
            rest: That text.

        Returns:
            Bucket and key: joined by ``/``, they give the text again. A bucket may hold a ``/`` (``host/container``).
        """
        bucket, _, key = rest.partition("/")
        return bucket, key

    def bucket_fault(self, bucket: str) -> str:
        """Return why a bucket name is invalid; empty if it is valid.

        Args:
            bucket: Name of the bucket.
        """
        return "" if self._fits(bucket) else f"{bucket[:80]!r} cannot be a bucket: {self.bucket_rule}"

    def key_fault(self, key: str) -> str:  # noqa: ARG002  for subclasses
        """Return why a key is invalid; empty if it is valid.

        ``limits.key_bytes``, NUL and invalid Unicode are checked elsewhere, for all stores.

        Args:
            key: Key, unescaped.
        """
        return ""

    def resolve(self, options: Any, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:  # noqa: ANN401, ARG002
        """Return completely resolved settings, and an identity, from options and environment.

        Both are hashable. The identity changes when options and environment name other credentials, and does not reveal
        them; a bucket is opened again for a new identity.

        Args:
            options: Options of the store's class.
            environ: Environment of the process.

        Raises:
            ConfigError: A value is invalid, or a required one is missing.
        """
        return None, None

    def variant(self, settings: Any) -> Store | None:  # noqa: ANN401, ARG002  the store's own settings
        """Return the preset that the settings of ``resolve`` select; None without one.

        Args:
            settings: Settings that ``resolve`` returned.
        """
        return None

    def advice(self, text: str) -> str:  # noqa: ARG002  for subclasses
        """Return a hint for a URL of an unknown scheme, as "write …"; empty without a hint.

        Args:
            text: The URL as given.
        """
        return ""

    def named(self, bucket: str) -> Store:  # noqa: ARG002  for profiles
        """Return the store of one bucket.

        Args:
            bucket: Name of the bucket: of a profile, where ``profiles`` is set.
        """
        return self

    def take(self, options: StoreOptions) -> StoreOptions:
        """Return ``options`` as options of this store's class.

        Options of a base class, above all neutral ones, become this class's defaults with the parts that were given.
        If the store has ``defaults``, they apply to options that were not given.

        Args:
            options: Options as passed for a URL.

        Raises:
            ConfigError: The options are another store's, or a part of them cannot be used here.
        """
        mine = self.options
        kind: type = type(options)
        if not issubclass(kind, StoreOptions):
            named = " or ".join(dict.fromkeys((StoreOptions.__name__, mine.__name__)))
            foreign = callable(getattr(options, "get", None)) and callable(getattr(options, "head", None))
            remedy = f"; write {mine.__name__}(…)"
            if foreign and not isinstance(options, Mapping):
                remedy = "; for an obspec store write obspec://name/key, and store=ObspecOptions(store=…)"
            passed: object = options
            got = f"the class {passed.__name__}" if isinstance(passed, type) else kind_of(passed)
            raise ConfigError(f"store= must be {named}, got {got}{remedy}")
        if mine is not kind and not (mine is not StoreOptions and isinstance(options, mine)):
            if not (issubclass(mine, kind) or self.any_options):
                remedy = f"pass store={mine.__name__}(…), or StoreOptions(…) for the parts that all stores have"
                message = f"{self.schemes[0]}:// takes no {kind.__name__}, which are another provider's: {remedy}"
                raise ConfigError(message)
            shared = kind if issubclass(mine, kind) else StoreOptions
            names = {each.name for each in fields(shared)}
            options = mine(**{name: value for name, value in given(options).items() if name in names})
        if self.defaults is not None and options is not self.defaults:
            options = overlaid(self.defaults, options)
        self._check_parts(options)
        return options

    def _check_parts(self, options: StoreOptions) -> None:
        least, most, given = self.limits.least_part_bytes, self.limits.most_part_bytes, options.write.part_bytes
        if not least <= given <= most:
            bound = f"at least {least}" if given < least else f"at most {most}"
            raise ConfigError(f"WriteOptions.part_bytes must be {bound} for {self.name}, got {given}")

    def begin(self, opening: Opening) -> tuple[Driver, Transport]:
        """Open a bucket.

        Args:
            opening: Bucket, with options and settings.

        Returns:
            Its driver and transport, as ``open`` returns them.

        Raises:
            MissingExtra: A library that the store needs is not installed.
        """
        try:
            return self.open(opening)
        except ModuleNotFoundError as error:
            if not self.extra:
                raise
            message = f"{self.name} needs {error.name}, which is not installed: pip install {self.extra}"
            raise MissingExtra(message, url=opening.root) from error
