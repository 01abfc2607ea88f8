"""Options of a file system: fsspec's keyword arguments, converted to the options of a URL's provider."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields, is_dataclass
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError, PenstockError, Unusable
from penstock.options import StoreOptions
from penstock.options.parts import PART_KINDS
from penstock.options.private import given, hidden
from penstock.options.typed import convert_value, overlaid, suggest_word
from penstock.stores.urls import option_classes, parse, scheme_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.stores.urls import Location

# Option names of s3fs, gcsfs and adlfs, and Penstock's names for them.
_ELSEWHERE = {
    "key": "access_key",
    "username": "access_key",
    "secret": "secret_key",
    "password": "secret_key",
    "endpoint_url": "endpoint",
    "anon": "anonymous",
    "account_name": "account",
    "credential": "token",
    "client_kwargs": "endpoint and region",
    "config_kwargs": "transport=ps.TransportOptions(…)",
    "requester_pays": "account",
    "default_block_size": "block_size of open()",
    "default_cache_type": "cache_type of open()",
}


class Storage:
    """Options of one file system: those of ``store=``, overridden by those that were passed by name.

    If all paths belong to one provider, the named options are checked and converted here. If paths may belong to
    several (``penstock://``), names that no provider has are refused here; the others are checked once a path selects
    the provider.
    """

    def __init__(self, scheme: str, store: StoreOptions | str | None, named: Mapping[str, object]) -> None:
        self.store = store
        self.named = dict(named)
        if not named:
            return
        if isinstance(store, str):
            message = f"store={store!r} names a profile: put {', '.join(named)} into the profile"
            raise ConfigError(message)
        kind = scheme_store(scheme)
        if not kind.profiles:
            self.store, self.named = self._over(kind.options), {}
        else:
            for name in named:
                _check_known(name)

    def options(self, location: Location) -> StoreOptions | str | None:
        return self._over(location.store.options) if self.named else self.store

    def of(self, url: str) -> StoreOptions | str | None:
        return self.options(parse(url)) if self.named else self.store

    def _over(self, kind: type[StoreOptions]) -> StoreOptions:
        values: dict[str, Any] = {name: _value(kind, name, value) for name, value in self.named.items()}
        over = kind(**values)
        if not isinstance(self.store, StoreOptions):
            return over
        if type(self.store) is not kind:
            neutral = {each.name for each in fields(StoreOptions)}
            under = kind(**{name: value for name, value in given(self.store).items() if name in neutral})
            return overlaid(under, over)
        return overlaid(self.store, over)

    def secrets(self) -> list[str]:
        """Return the names of options that hold, or may hold, a secret."""
        return [*hidden(self.store), *(name for name, value in self.named.items() if _secret(name, value))]

    def plain(self, *, include_secrets: bool) -> dict[str, Any]:
        """Return the options as JSON values: keywords for a file system with the same options."""
        secrets = self.secrets()
        if secrets and include_secrets:
            message = (
                f"the options hold secrets ({', '.join(secrets)}), not for text: pass include_password=False, "
                "and set them by the environment or a profile where the file system is loaded"
            )
            raise Unusable(message)
        if isinstance(self.store, str):
            return {"store": self.store}
        own = given(self.store) if self.store is not None else {}
        return {
            name: _serialize_option(name, value) for name, value in (own | self.named).items() if name not in secrets
        }

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle for other uses than worker processes; raise ``Unusable`` if the options hold secrets.

        Pickling for worker processes (``ForkingPickler``) does not use this method.
        """
        if secrets := self.secrets():
            message = (
                f"a file system with secrets in its options ({', '.join(secrets)}) is pickled for worker processes "
                "only: set the environment where it is loaded, or name a profile"
            )
            raise Unusable(message)
        return _for_worker(self)


def _for_worker(storage: Storage) -> tuple[Callable[..., Storage], tuple[object, ...]]:
    return _again, (storage.store, storage.named)


def _again(store: StoreOptions | str | None, named: dict[str, object]) -> Storage:
    storage = Storage("", store, {})
    storage.named = named
    return storage


ForkingPickler.register(Storage, _for_worker)


def _check_known(name: str) -> None:
    known = list(dict.fromkeys(each.name for kind in option_classes() for each in fields(kind)))
    if name not in known:
        advice = _advice(name) or suggest_word(name, known, "")
        raise ConfigError(f"no store has an option {name!r}{advice}")


def _advice(name: str) -> str:
    return f": Penstock calls it {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""


def _value(kind: type[StoreOptions], name: str, value: object) -> object:
    """Return a value in the option's type: strings are converted, and dicts become the classes in ``PART_KINDS``."""
    field = next((each for each in fields(kind) if each.name == name), None)
    if field is None:
        if _advice(name):
            raise ConfigError(f"{kind.__name__} has no option {name!r}{_advice(name)}")
        # The class refuses the name, with a suggestion.
        return value
    if name in PART_KINDS and isinstance(value, dict):
        part = PART_KINDS[name]
        own = {each.name: each for each in fields(part)}
        for inner in value:
            if inner not in own:
                raise ConfigError(f"{part.__name__} has no option {inner!r}{suggest_word(inner, list(own), '')}")
        return part(**{inner: _convert_option(own[inner], each) for inner, each in value.items()})
    return _convert_option(field, value)


def _convert_option(field: Any, value: object) -> object:
    return convert_value(field, value, field.name) if isinstance(value, str) else value


def _secret(name: str, value: object) -> bool:
    for kind in option_classes():
        if name in kind.__dataclass_fields__:
            options: object = None
            # The value may be invalid alone, such as half of a pair: then it counts as a secret.
            with suppress(PenstockError):
                options = kind(**{name: value})  # type: ignore[arg-type]
            if options is None or hidden(options):
                return True
    return False


def _serialize_option(name: str, value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return {inner: _serialize_option(inner, each) for inner, each in given(value).items()}
    if callable(value):
        raise Unusable(f"{name}= is a function, which text cannot hold: set it where the file system is loaded")
    return dict(value) if hasattr(value, "keys") else list(value) if isinstance(value, tuple) else value  # type: ignore[call-overload]
