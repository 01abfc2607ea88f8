"""Base classes of options that may hold secrets: their repr and their pickling; a mapping that shows only its names."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import MISSING, Field, InitVar, dataclass, fields
from difflib import get_close_matches
from functools import partial, wraps
from inspect import signature
from multiprocessing.reduction import ForkingPickler
from numbers import Integral, Real
from operator import attrgetter
from os import PathLike
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from penstock.errors import ConfigError, Unusable, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Metadata of a field that never holds a secret: ``field(default="", metadata=PUBLIC)``. Metadata may also list other
# stores' names of this option, so that errors can correct them: ``"elsewhere": (name, …)``.
PUBLIC: dict[str, object] = {"public": True}


@dataclass(frozen=True, kw_only=True)
class OptionsPart:
    """Base class of options without secrets. As a field of other options, each part protects its own secrets.

    Values of fields declared as numbers, booleans or texts are type-checked before ``__post_init__``. An instance
    records which of its options were given (``given``), with any value; equality ignores this.
    """

    __slots__ = ("_names",)

    # A type checker would require this field in every ``__post_init__``, also in those of third parties.
    if not TYPE_CHECKING:
        # ``dataclasses.replace`` makes a new instance from all fields, and passes on the given names of the old one.
        _given: InitVar[frozenset[str] | None] = None

    def __new__(cls, *values: object, **options: object) -> Self:
        """Refuse positional values and unknown options; the error names the option that was probably intended."""
        before = options.pop("_given", None)
        if values:
            first = next(iter(cls.__annotations__), fields(cls)[0].name)
            raise ConfigError(f"{cls.__name__} accepts options only by name: write {cls.__name__}({first}=…)")
        if strange := [name for name in options if name not in cls.__dataclass_fields__]:
            raise ConfigError(advice(cls, strange[0]))
        made = object.__new__(cls)
        object.__setattr__(made, "_names", frozenset(_given_names(cls, options, before)))
        return made

    def __init_subclass__(cls, **options: object) -> None:
        """Make ``__post_init__`` check the types of fields first, and let signatures show public parameters only.

        ``dataclass`` creates a class with slots a second time, so this method runs twice for it, then with
        ``__init__``.
        """
        super().__init_subclass__(**options)
        cls.__signature__ = None  # type: ignore[attr-defined]  # not that of a base class
        if (init := vars(cls).get("__init__")) is not None:
            whole = signature(init)
            shown = [each for name, each in whole.parameters.items() if name != "_given"]
            init.__signature__ = whole.replace(parameters=shown)
            cls.__signature__ = whole.replace(parameters=shown[1:])  # type: ignore[attr-defined]
        check: Callable[[Any], None] | None = vars(cls).get("__post_init__")
        if check is not None and not hasattr(check, "__wrapped__"):

            @wraps(check)
            def checked(self: OptionsPart, *_given: object) -> None:
                check_kinds(self)
                check(self)

            cls.__post_init__ = checked  # type: ignore[attr-defined]

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only the given options: all others are the class's defaults after unpickling, too."""
        return partial(type(self), **given(self)), ()


# ``dataclasses.replace`` reads this attribute.
OptionsPart._given = property(attrgetter("_names"))  # type: ignore[attr-defined]  # noqa: SLF001


def _given_names(cls: type, options: Mapping[str, object], before: object) -> Iterator[str]:
    """Yield the names of the options that were given.

    None does not count as given if it is the default, because it stands for an unset option. ``before`` are the given
    names of the instance that ``dataclasses.replace`` copies; None for a new instance.
    """
    for each in fields(cls):
        if each.name in options:
            value, default = options[each.name], each.default
            if value is None and default is None:
                continue
            if not isinstance(before, frozenset) or each.name in before or not _is_default(each, value):
                yield each.name


def _is_default(field: Field[Any], value: object) -> bool:
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return value is default or (type(value) is type(default) and value == default)


def given(options: object) -> dict[str, Any]:
    """Return the given options by name: those that a program, a file or a command has set."""
    return {name: getattr(options, name) for name in sorted(getattr(options, "_names", ()))}


_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "bool": (bool, "True or False"),
    "str": ((str, PathLike), "text"),
}


def check_kinds(options: object) -> None:
    """Check that options have the types that their fields declare; no error shows a value, which may be a secret."""
    for each in fields(options):  # type: ignore[arg-type]
        kind, _, rest = str(each.type).partition(" | ")
        value = getattr(options, each.name)
        if kind not in _KINDS or rest not in ("", "None") or (rest and value is None):
            continue
        wanted, words = _KINDS[kind]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise ConfigError(f"{type(options).__name__}.{each.name} must be {words}, got {kind_of(value)}")


class Private(OptionsPart):
    """Options that may hold a secret; with one, they are pickled only for workers of this process (design/0012).

    Every value counts as a secret, and is neither shown nor pickled, unless its type cannot be one (numbers, booleans,
    functions, Penstock's own parts), its field has ``metadata=PUBLIC``, or it is the default of its field. So a third
    party's class without such metadata reveals nothing. A copy in memory is the same object, which is immutable.
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: object) -> None:
        """Apply these rules to each subclass, also of third parties, instead of those of ``dataclass``."""
        super().__init_subclass__(**options)
        ForkingPickler.register(cls, _for_worker)
        if "__repr__" not in vars(cls):
            cls.__repr__ = Private.__repr__  # type: ignore[method-assign]  # before dataclass writes one that shows all

    def __repr__(self) -> str:
        hidden = self._secrets()
        shown = [each for each in fields(self) if each.repr and each.name not in hidden]
        return f"{type(self).__qualname__}({', '.join(f'{each.name}={getattr(self, each.name)!r}' for each in shown)})"

    def _secrets(self) -> list[str]:
        return [each.name for each in fields(self) if _may_be_secret(each, getattr(self, each.name))]

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle options without a secret; raise ``Unusable`` for options with one."""
        if secrets := self._secrets():
            raise Unusable(
                f"{type(self).__name__} with a secret in it ({', '.join(secrets)}) is pickled for worker processes "
                "only, never into a file or for another machine: pass profile=, or set the environment where it is "
                "loaded, or pass store= there"
            )
        return _for_worker(self)


def hidden(options: object) -> list[str]:
    return options._secrets() if isinstance(options, Private) else []  # noqa: SLF001  of this module


def _may_be_secret(field: Field[Any], value: object) -> bool:
    if not field.repr:
        return value is not None
    # Functions are pickled by reference.
    plain = isinstance(value, bool | int | float | OptionsPart | FunctionType | BuiltinFunctionType)
    return not (plain or value is None or value == field.default or field.metadata.get("public", False))


def _for_worker(options: Private) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Pickle all given options: ``multiprocessing`` sends them to a child process through a pipe, not into a file."""
    for each in fields(options):
        if callable(function := getattr(options, each.name)):
            _check_reference(each.name, function)
    return partial(type(options), **given(options)), ()


def _check_reference(name: str, function: object) -> None:
    """Refuse a function that another process cannot import; pickle's error names neither the option nor the remedy."""
    try:
        ForkingPickler.dumps(function)
    except Exception as error:
        what = getattr(function, "__qualname__", type(function).__qualname__)
        message = f"{name}={what} cannot be sent to a worker: name a function that a module defines at its top level"
        raise Unusable(message) from error


def advice(kind: type, name: str) -> str:
    own, has = fields(kind), f"{kind.__name__} has no option {name!r}"
    if here := next((each.name for each in own if name in each.metadata.get("elsewhere", ())), None):
        return f"{has}: here it is {here!r}, write {kind.__name__}({here}=…)"
    owners = [each for each in _classes() if name in each.__dataclass_fields__]
    for part in own:
        for owner in owners:
            if str(part.type).partition(" | ")[0] == owner.__name__:
                inner = f"{part.name}={owner.__name__}({name}=…)"
                return f"{has}: it is an option of {owner.__name__}, write {kind.__name__}({inner})"
    if owners:
        named = " or ".join(each.__name__ for each in owners)
        return f"{has}: it is an option of {named}, write {owners[0].__name__}({name}=…)"
    names = [each.name for each in own]
    near = get_close_matches(name, names, 1)
    return f"{has}: did you mean {near[0]!r}?" if near else f"{has}, only {', '.join(names)}"


def _classes() -> Iterator[Any]:
    # By their public names: the options classes of stores are in the stores' folders.
    package: Any = sys.modules["penstock"]
    return (getattr(package, each) for each in package.__all__ if each.endswith("Options"))


V = TypeVar("V")


class HiddenMapping(Mapping[str, V], Generic[V]):
    """A copy of a mapping, equal to any mapping with the same items."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, V]) -> None:
        self._items = dict(items)

    def __getitem__(self, name: str) -> V:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        """Hash the names: values need not be hashable."""
        return hash(frozenset(self._items))

    def __repr__(self) -> str:
        return f"<{', '.join(self._items) or 'nothing'}>"

    def __reduce__(self) -> tuple[type[HiddenMapping[V]], tuple[dict[str, V]]]:
        """Pickle the items; the options that hold this mapping decide whether they may be pickled."""
        return HiddenMapping, (self._items,)
