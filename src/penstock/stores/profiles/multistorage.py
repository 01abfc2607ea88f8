"""Multi-Storage Client's profiles (NVIDIA, 1.3) as Penstock's: translation of its files, and its ``path_mapping``."""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import ConfigError
from penstock.options.typed import Value, suggest_word
from penstock.stores.profiles.files import ProfileTable, Signature, content_of, msc_candidates, rclone_file, signature

if TYPE_CHECKING:
    from collections.abc import Callable

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
    "skip_signature": "options.anonymous",
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
_RUST = (
    *("retry", "max_pool_connections", "max_concurrency", "multipart_chunksize", "connect_timeout", "read_timeout"),
    *("allow_http", "checksum_algorithm"),
)
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
    "metadata_provider": "says which objects there are, and Penstock would read and write past it: remove it to use "
    "the store's own listing",
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
_SOURCE = re.compile(r"(?:/|[a-z][a-z0-9+.-]*://)[^/].*/").fullmatch  # as in its schema
_TARGET = re.compile(r"msc://[^/]+/").fullmatch
_SIGNALS = ("metrics", "traces")
_EXPORTERS = ("otlp", "console")
_OTLP_OPTIONS = ("endpoint", "certificate_file", "client_key_file", "client_certificate_file", "timeout")
_READER = ("export_interval_millis", "export_timeout_millis")
# Type of an attributes provider -> form of each of its words in an attribute of the sink.
_FILLED = {"host": {"name": "{host}"}, "process": {"pid": "{pid}"}}


def msc_files(environ: Mapping[str, str]) -> tuple[Signature, ...]:
    """Return the existing files: Multi-Storage Client's own, those that it includes, rclone's."""
    found = next((each for each in map(signature, msc_candidates(environ)) if each.inode), None)
    if found is None and environ.get("MSC_CONFIG"):
        raise ConfigError(f"MSC_CONFIG names {environ['MSC_CONFIG']!r}, which is not a file: correct it, or unset it")
    included = () if found is None else tuple(signature(path) for path, _ in _read_included_files(found.path)[1:])
    other = rclone_file(environ)
    return tuple(each for each in (found, *included, *([signature(other)] if other else [])) if each is not None)


def msc_mappings(environ: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    """Return the file, source and target of each ``path_mapping``; two files must not map a source differently."""
    found = next((each for each in map(signature, msc_candidates(environ)) if each.inode), None)
    mappings: dict[str, tuple[str, str, str]] = {}
    for path, content in _read_included_files(found.path) if found is not None else ():
        for source, target in _require_mapping(content.get("path_mapping"), f"{path}: path_mapping").items():
            known = mappings.setdefault(str(source), (path, str(source), str(target)))
            if known[2] != str(target):
                raise _twice(f"path_mapping.{source}", known[0], path)
    return tuple(mappings.values())


def msc_tables(name: str, environ: Mapping[str, str]) -> list[ProfileTable]:
    """Return a profile as a Penstock table; profiles of Multi-Storage Client do not extend one another.

    ``_s3-bucket`` (``gs``, ``ais``) and ``__filesystem__`` exist without a file.
    """
    found = _profiles(environ)
    if name in found:
        table = translate_profile(name, *found[name])
        if "path_mapping" in found[name][2] and not environ.get("MSC_CONFIG"):
            table = replace(table, notes=(*table.notes, "path_mapping (it counts where MSC_CONFIG names the file)"))
        return [table]
    content = implicit(name)
    if content is None:
        near = suggest_word(
            name,
            found,
            f"; profiles are {', '.join(found)}" if found else "; its files have no profile (MSC_CONFIG names another)",
        )
        raise ConfigError(f"Multi-Storage Client has no profile {name!r}{near}")
    return [translate_profile(name, content, f"implicit profile {name}", {})]


def implicit(name: str) -> Mapping[str, Any] | None:
    """Return an implicit profile, ``__filesystem__`` or ``_s3-bucket``, as a file would hold it; else None. Pure."""
    protocol, mark, bucket = name.removeprefix("_").partition("-")
    if name == _FILESYSTEM:
        protocol, bucket = "file", "/"
    elif not (name.startswith("_") and mark and bucket and protocol in _IMPLICIT):
        return None
    return {"storage_provider": {"type": _IMPLICIT[protocol], "options": {"base_path": bucket}}}


def translations(path: str) -> dict[str, Callable[[], ProfileTable]]:
    """Return a translating function for each profile of one file and of those that it includes, for checks."""
    found = _profiles({"MSC_CONFIG": path})
    return {name: partial(translate_profile, name, *each) for name, each in found.items()}


def translate_profile(name: str, content: Mapping[str, Any], path: str, top: Mapping[str, Any]) -> ProfileTable:
    """Return a profile of Multi-Storage Client as a Penstock table; pure.

    Options that only tune are named in the table's ``notes``. So are misspelled options, which exist in real files and
    which Multi-Storage Client ignores, too. An unsupported option that changes the credentials, the place of an object
    or the meaning of a path raises ``ConfigError``.
    """
    _check_top(top, path)
    origin = f"{path}: profiles.{name}"
    if name.startswith("_") and content != implicit(name):
        raise ConfigError(f"{origin}: names that begin with '_' are reserved: choose another")
    for key, why in _REFUSED.items():
        if content.get(key):
            raise ConfigError(f"{origin}: {key} {why}")
    provider = content.get("storage_provider")
    if not isinstance(provider, Mapping):
        raise ConfigError(f"{origin}: storage_provider is missing: name a profile with a storage_provider")
    word = str(provider.get("type", ""))
    if word not in _TYPES:
        raise ConfigError(
            f"{origin}.storage_provider.type: no provider {word!r}"
            f"{suggest_word(word, _TYPES, '; Penstock has ' + ', '.join(_TYPES))}"
        )
    reading = _Translation(origin, str(Path(path).parent), *_TYPES[word])
    reading.options(_require_mapping(provider.get("options"), f"{origin}.storage_provider.options"))
    if "credentials_provider" in content:
        reading.credentials(content["credentials_provider"])
    reading.table("retry", _require_mapping(content.get("retry"), f"{origin}.retry"), _RETRY)
    reading.caching(content.get("caching_enabled"), top)
    reading.notes += [key for key in content if key not in _QUIET]
    if "opentelemetry" in top:
        reading.telemetry(top["opentelemetry"])
    return ProfileTable(name, origin, reading.values, tuple(reading.notes))


def _check_top(top: Mapping[str, Any], path: str) -> None:
    """Refuse sections that Multi-Storage Client does not know: a misspelled ``path_mapping`` would redirect paths."""
    for key in top:
        if key not in _TOP:
            raise ConfigError(
                f"{path}: unknown section {key!r}{suggest_word(str(key), _TOP, '; sections are ' + ', '.join(_TOP))}"
            )
    if top.get("experimental_features"):
        raise ConfigError(f"{path}: experimental_features: Penstock supports none: remove them")
    _require_mapping(top.get("profiles"), f"{path}: profiles")
    _require_mapping(top.get("path_mapping"), f"{path}: path_mapping")


class _Translation:
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
                self.table(where, _require_mapping(raw, f"{self._origin}.{where}"), _INNER)
            else:
                self._noted(name, raw, where)

    def _only(self, name: str, raw: object, known: object, where: str) -> None:
        if name == "signature_version" and raw == "UNSIGNED":
            self.set("options.anonymous", True, where)  # noqa: FBT003  a value
        elif raw != known:
            raise self.refused(where, f"must be {known!r}, got {raw!r}: remove it, or use another client")

    def _noted(self, name: str, raw: object, where: str) -> None:
        given = _require_mapping(raw, f"{self._origin}.{where}") if name == "rust_client" else {}
        for inner, value in given.items():
            if inner == "skip_signature" and isinstance(value, bool) and self._scheme in ("s3", "gs"):
                self.set("options.anonymous", value, f"{where}.{inner}")
            elif inner not in _RUST:
                raise self.refused(f"{where}.{inner}", "only tuning is allowed here: set the profile's own options")
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
        content = _require_mapping(given, f"{self._origin}.credentials_provider")
        word = str(content.get("type", ""))
        kind = _CREDENTIALS.get(word)
        if kind is None or self._scheme not in kind.schemes:
            fitting = [each for each, known in _CREDENTIALS.items() if self._scheme in known.schemes]
            there = "" if kind is None else f" for {self._scheme}://"
            found = f"; known: {', '.join(fitting)}" if fitting else "; none is supported: remove credentials_provider"
            near = suggest_word(word, fitting, found) if kind is None else found
            why = f": {_INSTEAD[word]}" if word in _INSTEAD else near
            raise self.refused("credentials_provider.type", f"no credentials {word!r}{there}{why}")
        where = "credentials_provider.options"
        options = _require_mapping(content.get("options"), f"{self._origin}.{where}")
        for name in options:
            if name not in kind.keys:
                known = f"; {word} has {', '.join(kind.keys) or 'none'}"
                raise self.refused(f"{where}.{name}", f"no such option here{suggest_word(name, kind.keys, known)}")
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
        given = _require_mapping(top["cache"], "cache")
        backend = _require_mapping(given.get("cache_backend"), "cache.cache_backend").get("cache_path")
        location = given.get("location") or backend
        if location:
            self.set("cache.path", f"{str(location).rstrip('/')}/penstock", "cache.location")
        checks = [given[each] for each in _CACHE_CHECKS if each in given]
        self.set("cache.mode", "immutable" if checks[:1] == [False] else "revalidate", "cache.check_source_version")
        own = {name: raw for name, raw in given.items() if name not in (*_CACHE_CHECKS, "location", "cache_backend")}
        for name in own:
            if name not in (*_CACHE, *_CACHE_TUNING):
                raise ConfigError(f"cache.{name}: no such option{suggest_word(name, _CACHE, '; ' + ', '.join(_CACHE))}")
        self.table("cache", {"size": _CACHE_SIZE} | own, _CACHE)

    def telemetry(self, given: object) -> None:
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


def _require_mapping(value: object, where: str) -> Mapping[str, Any]:
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
    found: dict[str, tuple[Mapping[str, Any], str, Mapping[str, Any]]] = {}
    files = msc_files(environ)
    other = rclone_file(environ)
    parts = _read_included_files(files[0].path) if files and files[0].path != other else []
    shared = _merge_shared(parts)
    for path, own in parts:
        content = {**own, **shared}
        for name, profile in _require_mapping(content.get("profiles"), f"{path}: profiles").items():
            if name in found and found[name][0] != profile:
                raise _twice(f"profile {name!r}", found[name][1], path)
            found.setdefault(name, (_require_mapping(profile, f"{path}: profiles.{name}"), path, content))
    for name, profile in (rclone_profiles(other) if other else {}).items():
        if name in found:
            raise _twice(f"profile {name!r}", found[name][1], other)
        found[name] = (profile, other, {})
    return found


def _merge_shared(parts: list[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
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


def _read_included_files(path: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return a file and those that it includes, which include no others, with their contents."""
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
            raise ConfigError(f"{parts[-1][0]}: include: an included file cannot include others: list them in {path}")
    return parts


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
_RCLONE_QUIET = ("type", "provider", "env_auth", "description")
_RCLONE_CREDENTIALS = {
    **dict.fromkeys(("s3", "s8k", "gcs_s3"), ("S3Credentials", _RCLONE_S3)),
    **dict.fromkeys(("azure", "azureblob"), ("AzureCredentials", {"connection": "connection"})),
}


def rclone_profiles(path: str) -> dict[str, dict[str, object]]:
    """Return the remotes of a file as Multi-Storage Client profiles, without remotes of unsupported types."""
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
    # Named as unused: a key that holds credentials would else be missed only when the store refuses.
    used = {*_RCLONE_QUIET, *_RCLONE_OPTIONS, *keys}
    return profile | {key: "" for key, value in section.items() if value and key not in used}


def map_path(text: str, environ: Mapping[str, str]) -> str:
    """Return the URL that ``path_mapping`` gives for a URL or absolute path, ``msc://profile/…``; unmapped, the text.

    The longest matching source counts, as in Multi-Storage Client; ``file:///path/x`` matches ``/path/``. URLs of
    ``msc://`` are never mapped.
    """
    if text.startswith("msc://"):
        return text
    plain = _normalize_url(text)
    for source, target in _sort_mappings(msc_mappings(environ)):
        if plain.startswith(source):
            return target + plain[len(source) :].lstrip("/")
    return text


def divides(text: str, environ: Mapping[str, str]) -> bool:
    """Return whether ``path_mapping`` has a source that begins with ``text`` and is longer. Raises as ``map_path``."""
    plain = _normalize_url(text)
    return any(
        len(source) > len(plain) and source.startswith(plain) for source, _ in _sort_mappings(msc_mappings(environ))
    )


@lru_cache(maxsize=4)
def _sort_mappings(mappings: tuple[tuple[str, str, str], ...]) -> list[tuple[str, str]]:
    for path, source, target in mappings:
        if not _SOURCE(source) or not _TARGET(target):
            raise ConfigError(
                f"{path}: path_mapping.{source}: a path or URL that ends in '/' is mapped to msc://PROFILE/, "
                f"not {source!r} to {target!r}"
            )
    pairs = [(_normalize_url(source), target) for _, source, target in mappings]
    return sorted(pairs, key=lambda pair: len(pair[0]), reverse=True)


def _normalize_url(text: str) -> str:
    """Return a path unchanged, and a URL with its scheme in lower case; a ``file`` URL becomes a path."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return text
    return f"/{rest.lstrip('/')}" if scheme.lower() == "file" else f"{scheme.lower()}://{rest}"


def telemetry(section: object) -> tuple[dict[str, object], list[str]]:
    """Return the section's values as ``metrics.endpoint``, ``attributes.NAME``, …, and its unused keys.

    Exporters are ``otlp`` and ``console``; a signal without one is not exported, as in Multi-Storage Client.
    Attributes come from static values, the environment, the host name and the process id.
    """
    found: dict[str, object] = {}
    notes: list[str] = []
    if not isinstance(section, Mapping):
        return {}, ["opentelemetry"]
    for key, content in section.items():
        if key not in _SIGNALS or not isinstance(content, Mapping):
            notes.append(f"opentelemetry.{key}")
            continue
        exporter = _exporter(str(key), content.get("exporter"), notes)
        found |= exporter
        if key == "metrics" and exporter:
            reader = _coerce_table(_coerce_table(content.get("reader")).get("options"))
            found |= {f"metrics.{name}": raw for name, raw in reader.items() if name in _READER}
            notes += [f"opentelemetry.metrics.reader.options.{name}" for name in reader if name not in _READER]
            found |= _attributes(content.get("attributes"), notes)
        known = ("exporter", "reader", "attributes") if key == "metrics" else ("exporter",)
        notes += [f"opentelemetry.{key}.{name}" for name in content if name not in known]
    return found, notes


def _exporter(signal: str, given: object, notes: list[str]) -> dict[str, object]:
    where = f"opentelemetry.{signal}.exporter"
    content = _coerce_table(given)
    kind = content.get("type")
    if kind not in _EXPORTERS:
        notes.append(f"{where}.type ({kind})" if content else f"opentelemetry.{signal} (it names no exporter)")
        return {}
    found: dict[str, object] = {f"{signal}.exporter": kind}
    for name, raw in _coerce_table(content.get("options")).items():
        if name == "headers" and isinstance(raw, Mapping):
            found |= {f"{signal}.headers.{header}": str(value) for header, value in raw.items()}
        elif name in _OTLP_OPTIONS and kind == "otlp":
            found[f"{signal}.{name}"] = raw
        else:
            notes.append(f"{where}.options.{name}")
    return found


def _attributes(given: object, notes: list[str]) -> dict[str, object]:
    """Return the attributes of metrics; of several with one name the last counts, as in Multi-Storage Client."""
    found: dict[str, object] = {}
    for content in map(_coerce_table, given if isinstance(given, list) else ()):
        kind = str(content.get("type"))
        for name, raw in _coerce_table(_coerce_table(content.get("options")).get("attributes")).items():
            if kind == "static":
                value = str(raw)
            elif kind == "environment_variables":
                value = f"${{{raw}:-}}"
            else:
                value = _FILLED.get(kind, {}).get(str(raw), "")
            if value:
                found[f"attributes.{name}"] = value
            else:
                notes.append(f"opentelemetry.metrics.attributes.{name} ({kind})")
        if not _coerce_table(content.get("options")).get("attributes"):
            notes.append(f"opentelemetry.metrics.attributes ({kind})")
    return found


def _coerce_table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
