"""Translation of NVIDIA's Multi-Storage Client profiles (1.3) to Penstock's: its files, their places and meanings."""

from __future__ import annotations

import configparser
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import ConfigError, MissingExtra
from penstock.options.table import Table, Value, meant
from penstock.stores.profiles.files import Signature, signature
from penstock.stores.profiles.telemetry import telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "candidates",
    "content_of",
    "implicit",
    "msc_files",
    "msc_mappings",
    "msc_tables",
    "rclone_file",
    "rclone_profiles",
    "translated",
    "translations",
    "yaml_of",
]

_FILESYSTEM = "__filesystem__"
# Type -> the scheme of its URLs here, and the service for types of S3's dialect.
_TYPES = {
    "s3": ("s3", ""),
    "s3_cuobject": ("s3", ""),
    "s8k": ("s3", "s8k"),
    "gcs_s3": ("s3", "gcs"),
    "ais_s3": ("s3", "ais"),
    "gcs": ("gs", ""),
    "azure": ("az", ""),
    "oci": ("oci", ""),
    "ais": ("ais", ""),
    "file": ("file", ""),
}
_IMPLICIT = {"s3": "s3", "gs": "gcs", "ais": "ais", "file": "file"}
_S3 = {
    "endpoint_url": "options.endpoint",
    "region_name": "options.region",
    "profile_name": "options.profile",
    "connect_timeout": "transport.connect_timeout_s",
    "read_timeout": "transport.stall_timeout_s",
    "max_pool_connections": "transport.connections",
    "verify": "transport.verify",
}
# Option of a storage provider -> Penstock's key, by Penstock's scheme. Other options only tune, or are misspelled.
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "s3": _S3,
    "gs": {"endpoint_url": "options.endpoint", "skip_signature": "options.anonymous"},
    "az": {"endpoint_url": "options.endpoint", "account_url": "options.endpoint"},
    "oci": {"namespace": "options.account"},
    "ais": {"endpoint": "options.endpoint", "ca_cert": "transport.ca_file"},
}
_INNER = {"addressing_style": "options.addressing", "use_accelerate_endpoint": "options.accelerate"}
# Options of rust_client that only tune; it would also accept a bucket, an endpoint and keys.
_RUST = ("retry", "max_pool_connections", "max_concurrency", "multipart_chunksize", "connect_timeout", "read_timeout")
# Option -> the value without an effect; another value changes the credentials, the place or the written data.
_ONLY: Mapping[str, Mapping[str, object]] = {
    "s3": {"signature_version": "s3v4", "infer_content_type": False},
    "ais": {"provider": "ais"},
}


class _Credentials(NamedTuple):
    """Type of credentials provider: its schemes, its options as Penstock's keys, and its required options."""

    schemes: tuple[str, ...]
    keys: Mapping[str, str]
    needs: tuple[tuple[str, ...], ...]  # exactly one of each group


_CREDENTIALS = {
    "S3Credentials": _Credentials(
        ("s3", "oci"),
        {
            "access_key": "options.access_key",
            "secret_key": "options.secret_key",
            "session_token": "options.session_token",
        },
        (("access_key",), ("secret_key",)),
    ),
    "AzureCredentials": _Credentials(("az",), {"connection": "options.connection_string"}, (("connection",),)),
    "DefaultAzureCredentials": _Credentials(("az",), {}, ()),
    "GoogleServiceAccountCredentialsProvider": _Credentials(
        ("gs",), {"file": "options.credentials_file", "info": "options.credentials_json"}, (("file", "info"),)
    ),
    "FileBasedCredentials": _Credentials(
        ("s3", "oci"), {"credential_file_path": "options.credentials_process"}, (("credential_file_path",),)
    ),
}
_INSTEAD = {"AISCredentials": "set AIS_AUTHN_TOKEN or AIS_AUTHN_TOKEN_FILE, and remove credentials_provider"}
# Settings that change which object a path means, and where it is stored.
_REFUSED = {
    "provider_bundle": "is run by Multi-Storage Client's own code: name a profile with a storage_provider",
    "storage_provider_profiles": "is run by Multi-Storage Client's own code: name a profile with a storage_provider",
    "metadata_provider": "says which objects there are, and Penstock would read and write past it: remove it where the "
    "store's own listing is meant",
    "replicas": "are read from and deleted in, and Penstock would not: remove them, and sync to each store by its own "
    "profile",
}
_RETRY = {"attempts": "retry.attempts", "delay": "retry.base_s"}
_CACHE = {"size": "cache.size_bytes", "cache_line_size": "cache.block_bytes"}
_CACHE_CHECKS = ("check_source_version", "use_etag")  # the second until 1.0
_CACHE_TUNING = ("prefetch_file", "eviction_policy")
_CACHE_SIZE = "10G"  # Multi-Storage Client's default
_QUIET = ("storage_provider", "credentials_provider", "retry", "comment", "caching_enabled", *_REFUSED)
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_TOP = ("include", "profiles", "cache", "opentelemetry", "path_mapping", "posix", "experimental_features")
_SHARED = ("cache", "opentelemetry")  # the same in all files
_ATTRIBUTES = "attributes"  # of opentelemetry's metrics: joined from all files


def candidates(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the places of Multi-Storage Client's file, in its order; the first existing file counts."""
    if named := environ.get("MSC_CONFIG"):
        yield str(Path(named).expanduser().absolute())
        return
    home, xdg = environ.get("HOME"), environ.get("XDG_CONFIG_HOME")
    stems = [f"{xdg}/msc/config"] if xdg else []
    stems += [f"{home}/.msc_config", f"{home}/.config/msc/config"] if home else []
    stems += [f"{each}/msc/config" for each in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")]
    # A relative path would refer to the working directory, which may belong to another user.
    stems = [stem for stem in stems if stem.startswith("/")]
    for stem in (*stems, "/etc/msc_config"):
        yield from (f"{stem}.yaml", f"{stem}.json")


def msc_files(environ: Mapping[str, str]) -> tuple[Signature, ...]:
    """Return the existing files: Multi-Storage Client's own, those that it includes, rclone's.

    Raises:
        ConfigError: ``MSC_CONFIG`` does not name a file, or a file cannot be read.
        MissingExtra: A file is YAML, and PyYAML is not installed.

    """
    found = next((each for each in map(signature, candidates(environ)) if each.inode), None)
    if found is None and environ.get("MSC_CONFIG"):
        raise ConfigError(f"MSC_CONFIG names {environ['MSC_CONFIG']!r}, which is no file: correct it, or unset it")
    included = () if found is None else tuple(signature(path) for path, _ in _parts(found.path)[1:])
    other = rclone_file(environ)
    return tuple(each for each in (found, *included, *([signature(other)] if other else [])) if each is not None)


def msc_mappings(environ: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    """Return the file, source and target of each ``path_mapping``; raises as ``msc_files`` does.

    Raises:
        ConfigError: Two files map a source to different places.

    """
    found = next((each for each in map(signature, candidates(environ)) if each.inode), None)
    mappings: dict[str, tuple[str, str, str]] = {}
    for path, content in _parts(found.path) if found is not None else ():
        for source, target in _mapping(content.get("path_mapping"), f"{path}: path_mapping").items():
            known = mappings.setdefault(str(source), (path, str(source), str(target)))
            if known[2] != str(target):
                raise _twice(f"path_mapping.{source}", known[0], path)
    return tuple(mappings.values())


def msc_tables(name: str, environ: Mapping[str, str]) -> list[Table]:
    """Return a profile as a Penstock table; profiles of Multi-Storage Client do not extend one another.

    ``_s3-bucket`` (``gs``, ``ais``) and ``__filesystem__`` exist without a file.

    Raises:
        ConfigError: The profile does not exist, or Penstock does not support it.
        MissingExtra: As in ``msc_files``.

    """
    found = _profiles(environ)
    if name in found:
        table = translated(name, *found[name])
        if "path_mapping" in found[name][2] and not environ.get("MSC_CONFIG"):
            table = replace(table, notes=(*table.notes, "path_mapping (it counts where MSC_CONFIG names the file)"))
        return [table]
    content = implicit(name)
    if content is None:
        near = meant(
            name,
            found,
            f"; there are {', '.join(found)}" if found else "; no file of its has any (MSC_CONFIG names another)",
        )
        raise ConfigError(f"Multi-Storage Client has no profile {name!r}{near}")
    return [translated(name, content, f"implicit profile {name}", {})]


def implicit(name: str) -> Mapping[str, Any] | None:
    """Return an implicit profile, ``__filesystem__`` or ``_s3-bucket``, as a file would hold it; else None. Pure."""
    protocol, mark, bucket = name.removeprefix("_").partition("-")
    if name == _FILESYSTEM:
        protocol, bucket = "file", "/"
    elif not (name.startswith("_") and mark and bucket and protocol in _IMPLICIT):
        return None
    return {"storage_provider": {"type": _IMPLICIT[protocol], "options": {"base_path": bucket}}}


def translations(path: str) -> dict[str, Callable[[], Table]]:
    """Return a translating function for each profile of one file and of those that it includes, for checks."""
    found = _profiles({"MSC_CONFIG": path})
    return {name: partial(translated, name, *each) for name, each in found.items()}


def translated(name: str, content: Mapping[str, Any], path: str, top: Mapping[str, Any]) -> Table:
    """Return a profile of Multi-Storage Client as a Penstock table; pure.

    Options that only tune are named in the table's ``notes``. So are misspelled options, which exist in real files and
    which Multi-Storage Client ignores, too.

    Raises:
        ConfigError: Its type is unknown, or an option is not supported that changes the credentials, the place of an
            object or the meaning of a path.

    """
    _check_top(top, path)
    origin = f"{path}: profiles.{name}"
    if name.startswith("_") and content != implicit(name):
        raise ConfigError(f"{origin}: names that begin with '_' are those of profiles without a file: choose another")
    for key, why in _REFUSED.items():
        if content.get(key):
            raise ConfigError(f"{origin}: {key} {why}")
    provider = content.get("storage_provider")
    if not isinstance(provider, Mapping):
        raise ConfigError(f"{origin}: it has no storage_provider: name a profile with a storage_provider")
    word = str(provider.get("type", ""))
    if word not in _TYPES:
        raise ConfigError(f"{origin}.storage_provider.type: no provider {word!r}{meant(word, _TYPES, _available())}")
    reading = _Reading(origin, str(Path(path).parent), *_TYPES[word])
    reading.options(_mapping(provider.get("options"), f"{origin}.storage_provider.options"))
    if "credentials_provider" in content:
        reading.credentials(content["credentials_provider"])
    reading.table("retry", _mapping(content.get("retry"), f"{origin}.retry"), _RETRY)
    reading.caching(content.get("caching_enabled"), top)
    reading.notes += [key for key in content if key not in _QUIET]
    if "opentelemetry" in top:
        reading.telemetry(top["opentelemetry"])
    return Table(name, origin, reading.values, tuple(reading.notes))


def _check_top(top: Mapping[str, Any], path: str) -> None:
    """Refuse sections that Multi-Storage Client does not know: with ``path_mapping`` misspelled, paths go elsewhere."""
    for key in top:
        if key not in _TOP:
            raise ConfigError(
                f"{path}: there is no section {key!r}{meant(str(key), _TOP, '; there are ' + ', '.join(_TOP))}"
            )
    if top.get("experimental_features"):
        raise ConfigError(f"{path}: experimental_features: Penstock has none: remove them")
    _mapping(top.get("profiles"), f"{path}: profiles")
    _mapping(top.get("path_mapping"), f"{path}: path_mapping")


def _available() -> str:
    return f"; Penstock has {', '.join(_TYPES)}"


class _Reading:
    """Profile that is being translated."""

    def __init__(self, origin: str, folder: str, scheme: str, service: str) -> None:
        self._origin, self._folder, self._scheme = origin, folder, scheme
        self.values: dict[str, Value] = {}
        self.notes: list[str] = []
        if service:
            self.set("options.provider", service, "storage_provider.type")

    def set(self, key: str, raw: object, where: str) -> None:
        self.values[key] = Value(_ours(raw), f"{self._origin}.{where}", self._folder)

    def refused(self, where: str, why: str) -> ConfigError:
        return ConfigError(f"{self._origin}.{where}: {why}")

    def options(self, given: Mapping[str, Any]) -> None:
        self._place(str(given.get("base_path") or ""))
        keys, only = _OPTIONS.get(self._scheme, {}), _ONLY.get(self._scheme, {})
        for name, raw in given.items():
            where = f"storage_provider.options.{name}"
            # Empty values are defaults, as in Multi-Storage Client.
            if name == "base_path" or raw is None or raw == "":
                continue
            if name == "skip_verify" and self._scheme == "ais":
                self.set("transport.verify", not raw, where)
            elif name == "verify" and isinstance(raw, str) and name in keys:
                self.set("transport.ca_file", raw, where)
            elif name in keys:
                self.set(keys[name], raw, where)
            elif name in only:
                self._only(name, raw, only[name], where)
            elif name == "s3" and self._scheme == "s3":
                self.table(where, _mapping(raw, f"{self._origin}.{where}"), _INNER)
            else:
                self._noted(name, raw, where)

    def _only(self, name: str, raw: object, known: object, where: str) -> None:
        if name == "signature_version" and raw == "UNSIGNED":
            self.set("options.anonymous", True, where)  # noqa: FBT003  a value
        elif raw != known:
            raise self.refused(where, f"must be {known!r}, got {raw!r}: remove it, or use another client")

    def _noted(self, name: str, raw: object, where: str) -> None:
        for inner in _mapping(raw, f"{self._origin}.{where}") if name == "rust_client" else ():
            if inner not in _RUST:
                raise self.refused(f"{where}.{inner}", "only tuning may stand there: set the profile's own options")
        self.notes.append(where)

    def _place(self, base: str) -> None:
        where = "storage_provider.options.base_path"
        base = re.sub(r"/{2,}", "/", base)
        if self._scheme == "file":
            self.set("url", f"file:///{base.lstrip('/')}", where)
        elif base.strip("/"):
            self.set("url", f"{self._scheme}://{base.strip('/')}/", where)
        else:  # the URL names the bucket
            self.set("provider", self._scheme, where)

    def credentials(self, given: object) -> None:
        """Translate the credentials; unsupported ones are an error, since other credentials would sign the requests."""
        content = _mapping(given, f"{self._origin}.credentials_provider")
        word = str(content.get("type", ""))
        kind = _CREDENTIALS.get(word)
        if kind is None or self._scheme not in kind.schemes:
            fitting = [each for each, known in _CREDENTIALS.items() if self._scheme in known.schemes]
            there = "" if kind is None else f" for {self._scheme}://"
            found = f"; there are {', '.join(fitting)}" if fitting else "; there are none: remove credentials_provider"
            near = meant(word, fitting, found) if kind is None else found
            why = f": {_INSTEAD[word]}" if word in _INSTEAD else near
            raise self.refused("credentials_provider.type", f"no credentials {word!r}{there}{why}")
        where = "credentials_provider.options"
        options = _mapping(content.get("options"), f"{self._origin}.{where}")
        for name in options:
            if name not in kind.keys:
                known = f"; {word} has {', '.join(kind.keys) or 'none'}"
                raise self.refused(f"{where}.{name}", f"no such option here{meant(name, kind.keys, known)}")
        given_options = {name: raw for name, raw in options.items() if raw is not None and raw != ""}
        for several in kind.needs:
            if sum(name in given_options for name in several) != 1:
                raise self.refused(where, f"{word} needs {' or '.join(several)}")
        self.values.pop("options.profile", None)  # as in Multi-Storage Client
        for name, raw in given_options.items():
            if name == "credential_file_path":  # read again before the credentials expire
                self.set(kind.keys[name], ["cat", str(raw)], f"{where}.{name}")
            else:
                self.set(kind.keys[name], json.dumps(raw) if isinstance(raw, Mapping) else raw, f"{where}.{name}")

    def caching(self, enabled: object, top: Mapping[str, Any]) -> None:
        """Translate the file's cache; Penstock uses a subdirectory of it, because the two formats differ."""
        if enabled is not None and not isinstance(enabled, bool):
            raise self.refused("caching_enabled", f"must be true or false, got {enabled!r}")
        if enabled is False:
            self.set("cache.mode", "off", "caching_enabled")
        if not enabled:
            return
        if "cache" not in top:  # Multi-Storage Client caches nothing
            self.notes.append("caching_enabled (there is no table cache)")
            return
        given = _mapping(top["cache"], "cache")
        backend = _mapping(given.get("cache_backend"), "cache.cache_backend").get("cache_path")
        location = given.get("location") or backend
        if location:
            self.set("cache.path", f"{str(location).rstrip('/')}/penstock", "cache.location")
        checks = [given[each] for each in _CACHE_CHECKS if each in given]
        self.set("cache.mode", "immutable" if checks[:1] == [False] else "revalidate", "cache.check_source_version")
        own = {name: raw for name, raw in given.items() if name not in (*_CACHE_CHECKS, "location", "cache_backend")}
        for name in own:
            if name not in (*_CACHE, *_CACHE_TUNING):
                raise ConfigError(f"cache.{name}: no such option{meant(name, _CACHE, '; ' + ', '.join(_CACHE))}")
        self.table("cache", {"size": _CACHE_SIZE} | own, _CACHE)

    def telemetry(self, given: object) -> None:
        """Translate the file's exporters."""
        found, notes = telemetry(given)
        for key, raw in found.items():
            self.set(f"telemetry.{key}", raw, "opentelemetry")
        self.notes += notes

    def table(self, table: str, given: Mapping[str, Any], keys: Mapping[str, str]) -> None:
        for name, raw in given.items():
            if name in keys:
                self.set(keys[name], raw, f"{table}.{name}")
            else:
                self.notes.append(f"{table}.{name}")


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    """Return a table, empty for None; raise ``ConfigError`` for another value."""
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a mapping of keys, got {type(value).__name__}")
    return value or {}


def _ours(raw: object) -> object:
    """Return a value with its variables in Penstock's form: ``$NAME`` becomes ``${NAME}``."""
    if isinstance(raw, str):
        return _VARIABLE.sub(r"${\1}", raw)
    return [_ours(each) for each in raw] if isinstance(raw, list) else raw


def _profiles(environ: Mapping[str, str]) -> dict[str, tuple[Mapping[str, Any], str, Mapping[str, Any]]]:
    """Return each profile with its file and that file's whole content."""
    found: dict[str, tuple[Mapping[str, Any], str, Mapping[str, Any]]] = {}
    files = msc_files(environ)
    other = rclone_file(environ)
    parts = _parts(files[0].path) if files and files[0].path != other else []
    shared = _shared(parts)
    for path, own in parts:
        content = {**own, **shared}
        for name, profile in _mapping(content.get("profiles"), f"{path}: profiles").items():
            if name in found and found[name][0] != profile:
                raise _twice(f"profile {name!r}", found[name][1], path)
            found.setdefault(name, (_mapping(profile, f"{path}: profiles.{name}"), path, content))
    for name, profile in (rclone_profiles(other) if other else {}).items():
        if name in found:
            raise _twice(f"profile {name!r}", found[name][1], other)
        found[name] = (profile, other, {})
    return found


def _shared(parts: list[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the settings shared by the profiles of all files; raise ``ConfigError`` if two files differ."""
    found: dict[str, Any] = {}
    attributes: list[object] = []
    for key in _SHARED:
        where = ""
        for path, content in parts:
            if key not in content:
                continue
            own = content[key]
            metrics = own.get("metrics") if key == "opentelemetry" and isinstance(own, Mapping) else None
            if isinstance(metrics, Mapping) and isinstance(metrics.get(_ATTRIBUTES), list):
                attributes += metrics[_ATTRIBUTES]
                own = {**own, "metrics": {name: raw for name, raw in metrics.items() if name != _ATTRIBUTES}}
            if where and own != found[key]:
                raise _twice(key, where, path)
            found[key], where = own, path
    if attributes:
        found["opentelemetry"] = {
            **found["opentelemetry"],
            "metrics": {**found["opentelemetry"]["metrics"], _ATTRIBUTES: attributes},
        }
    return found


def _twice(what: str, path: str, other: str) -> ConfigError:
    return ConfigError(f"{what} is defined in {path} and, in another way, in {other}: remove one of them")


_parsed: dict[str, tuple[Signature, Mapping[str, Any]]] = {}


def _parts(path: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return a file and those that it includes, with their contents.

    Raises:
        ConfigError: A file cannot be read, has an unknown section, or is included and includes others.
        MissingExtra: A file is YAML, and PyYAML is not installed.

    """
    content = content_of(path)
    _check_top(content, path)
    included = content.get("include") or []
    if not isinstance(included, list) or not all(isinstance(each, str) for each in included):
        raise ConfigError(f"{path}: include must be a list of paths, got {included!r}"[:200])
    parts = [(path, content)]
    for each in included:
        parts.append((str(Path(path).parent / each), content_of(str(Path(path).parent / each))))
        _check_top(parts[-1][1], parts[-1][0])
        if "include" in parts[-1][1]:
            raise ConfigError(f"{parts[-1][0]}: include: an included file includes no others: name them in {path}")
    return parts


def content_of(path: str) -> Mapping[str, Any]:
    """Return the contents of a file; an empty mapping for a blank one.

    Raises:
        ConfigError: The file cannot be read, or is not YAML or JSON.
        MissingExtra: The file is YAML, and PyYAML is not installed.

    """
    now, held = signature(path), _parsed.get(path)
    if held is None or held[0] != now:
        held = _parsed[path] = now, _read(path)
    return held[1]


def _read(path: str) -> Mapping[str, Any]:
    fault, content = "", None
    try:
        text = Path(path).read_text("utf-8")
        content = json.loads(text) if path.endswith(".json") else yaml_of(text, path)
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        fault = "is not UTF-8 text"
    except (ValueError, RecursionError):
        fault = "is not JSON"
    # A blank file, or a file of comments.
    if content is None and not fault and not path.endswith(".json"):
        content = {}
    if not fault and not isinstance(content, Mapping):
        fault = "is no mapping of keys"
    if fault:
        raise ConfigError(f"the file of Multi-Storage Client, {path}, {fault}")
    return _mapping(content, path)


def yaml_of(text: str, path: str) -> object:
    """Return the contents of a YAML text.

    Raises:
        ConfigError: The text is not YAML; the message does not quote it.
        MissingExtra: PyYAML is not installed.

    """
    try:
        import yaml
    except ModuleNotFoundError:
        raise MissingExtra(f"{path} is YAML, which needs PyYAML: pip install 'penstock[msc]'") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark is not None else ""
        fault = f"the file of Multi-Storage Client, {path}, is not YAML: an error{line}"
    # Raised outside the except block: the parser's error quotes the line.
    raise ConfigError(fault)


_RCLONE_S3 = {"access_key_id": "access_key", "secret_access_key": "secret_key", "session_token": "session_token"}
# rclone's types, and Multi-Storage Client's own, which it also accepts there.
_RCLONE_TYPES = {
    **{each: each for each in ("s3", "s8k", "gcs_s3", "azure", "gcs", "oci", "ais", "file")},
    "azureblob": "azure",
    "google cloud storage": "gcs",
    "oracleobjectstorage": "oci",
}
_RCLONE_OPTIONS = {
    "region": "region_name",
    "endpoint": "endpoint_url",
    "base_path": "base_path",
    "profile_name": "profile_name",
    "namespace": "namespace",
}
_RCLONE_CREDENTIALS = {
    **dict.fromkeys(("s3", "s8k", "gcs_s3"), ("S3Credentials", _RCLONE_S3)),
    **dict.fromkeys(("azure", "azureblob"), ("AzureCredentials", {"connection": "connection"})),
}


def rclone_file(environ: Mapping[str, str]) -> str:
    """Return the path of ``rclone.conf``; empty if it does not exist.

    Places, in Multi-Storage Client's order: beside the program, ``$XDG_CONFIG_HOME/rclone``, ``/etc``,
    ``~/.config/rclone``, and ``~/.rclone.conf``.
    """
    program = shutil.which("rclone", path=environ.get("PATH"))
    home, xdg = environ.get("HOME"), environ.get("XDG_CONFIG_HOME")
    paths = [Path(program).with_name("rclone.conf")] if program else []
    paths += [Path(xdg, "rclone", "rclone.conf")] if xdg else []
    paths += [Path("/etc/rclone.conf")]
    paths += [Path(home, ".config", "rclone", "rclone.conf"), Path(home, ".rclone.conf")] if home else []
    # A relative path, as from a PATH with ".", would refer to the working directory, which may belong to another user.
    return next((str(path) for path in paths if path.is_absolute() and path.is_file()), "")


def rclone_profiles(path: str) -> dict[str, dict[str, object]]:
    """Return the remotes of a file as Multi-Storage Client profiles; remotes of unsupported types are left out.

    Raises:
        ConfigError: The file cannot be read or parsed.

    """
    parser = configparser.RawConfigParser(interpolation=None)
    fault = ""
    try:
        with Path(path).open(encoding="utf-8") as stream:
            parser.read_file(stream)
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    except (configparser.Error, UnicodeDecodeError) as error:
        fault = f"cannot be parsed: {type(error).__name__}"
    if fault:
        raise ConfigError(f"rclone's file {path} {fault}")
    return {name: _profile(parser[name]) for name in parser.sections() if parser[name].get("type") in _RCLONE_TYPES}


def _profile(section: Mapping[str, str]) -> dict[str, object]:
    kind = section["type"]
    options = {ours: section[theirs] for theirs, ours in _RCLONE_OPTIONS.items() if theirs in section}
    if kind == "ais" and "endpoint_url" in options:
        options["endpoint"] = options.pop("endpoint_url")
    profile: dict[str, object] = {"storage_provider": {"type": _RCLONE_TYPES[kind], "options": options}}
    name, keys = _RCLONE_CREDENTIALS.get(kind, ("", {}))
    if credentials := {ours: section[theirs] for theirs, ours in keys.items() if theirs in section}:
        profile["credentials_provider"] = {"type": name, "options": credentials}
    return profile
