"""Multi-Storage Client's files mean here what they mean there; what they do not, is named."""

import json
import os
import re
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.stores.profiles.files import msc_candidates
from penstock.stores.profiles.multistorage import _profiles, msc_files, msc_mappings, msc_tables, translate_profile


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "system"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def made(kind, options, **profile):
    content = {"storage_provider": {"type": kind, "options": {"base_path": "bucket/base"} | options}} | profile
    found = translate_profile("x", content, "/etc/msc_config.yaml", {})
    return {key: each.raw for key, each in found.values.items()}, list(found.notes)


def _names(environ):
    return list(_profiles(environ))


def test_files_are_looked_for_where_it_looks_for_them(home):
    assert [*msc_candidates({"MSC_CONFIG": "/a/b.json", "HOME": "/h"})] == ["/a/b.json"]
    order = [*msc_candidates({"HOME": "/h", "XDG_CONFIG_HOME": "/x", "XDG_CONFIG_DIRS": "/s:/t"})]
    stems = ["/x/msc/config", "/h/.msc_config", "/h/.config/msc/config", "/s/msc/config", "/t/msc/config"]
    assert order == [f"{stem}.{end}" for stem in (*stems, "/etc/msc_config") for end in ("yaml", "json")]
    assert _names(os.environ) == []
    (home / ".msc_config.json").write_text('{"profiles": {"late": {}}}')
    (home / ".msc_config.yaml").write_text("profiles:\n  first: {}\n")
    assert _names(os.environ) == ["first"]
    with pytest.raises(ConfigError, match=r"MSC_CONFIG names '/nowhere.yaml', which is not a file"):
        msc_files(os.environ | {"MSC_CONFIG": "/nowhere.yaml"})


@pytest.mark.parametrize(
    ("kind", "options", "values"),
    [
        (
            "s3",
            {"endpoint_url": "http://h", "region_name": "r", "profile_name": "p", "s3": {"addressing_style": "path"}},
            {
                "url": "s3://bucket/base/",
                "options.endpoint": "http://h",
                "options.region": "r",
                "options.profile": "p",
                "options.addressing": "path",
            },
        ),
        ("s8k", {"verify": False}, {"url": "s3://bucket/base/", "options.provider": "s8k", "transport.verify": False}),
        (
            "gcs_s3",
            {"verify": "/ca"},
            {"url": "s3://bucket/base/", "options.provider": "gcs", "transport.ca_file": "/ca"},
        ),
        (
            "ais_s3",
            {"read_timeout": 3},
            {"url": "s3://bucket/base/", "options.provider": "ais", "transport.stall_timeout_s": 3},
        ),
        ("s3", {"signature_version": "UNSIGNED"}, {"url": "s3://bucket/base/", "options.anonymous": True}),
        ("gcs", {"skip_signature": True}, {"url": "gs://bucket/base/", "options.anonymous": True}),
        ("azure", {"account_url": "https://a"}, {"url": "az://bucket/base/", "options.endpoint": "https://a"}),
        ("oci", {"namespace": "n"}, {"url": "oci://bucket/base/", "options.account": "n"}),
        (
            "ais",
            {"endpoint": "http://g", "skip_verify": True},
            {"url": "ais://bucket/base/", "options.endpoint": "http://g", "transport.verify": False},
        ),
        ("file", {"base_path": "/data//x"}, {"url": "file:///data/x"}),
        ("s3", {"base_path": "/bucket//a/"}, {"url": "s3://bucket/a/"}),
        ("s3", {"base_path": ""}, {"provider": "s3"}),
        ("s3", {"base_path": "$B/${C}"}, {"url": "s3://${B}/${C}/"}),
    ],
    ids=range(13),
)
def test_options_of_each_type_become_ours(kind, options, values):
    assert made(kind, options) == (values, [])


@pytest.mark.parametrize(
    ("store", "kind", "credentials", "values"),
    [
        (
            "s3",
            "S3Credentials",
            {"access_key": "a", "secret_key": "$S", "session_token": None},
            {"options.access_key": "a", "options.secret_key": "${S}"},
        ),
        ("azure", "AzureCredentials", {"connection": "c"}, {"options.connection_string": "c"}),
        ("azure", "DefaultAzureCredentials", {}, {}),
        (
            "gcs",
            "GoogleServiceAccountCredentialsProvider",
            {"info": {"a": 1}},
            {"options.credentials_json": '{"a": 1}'},
        ),
        ("s3", "FileBasedCredentials", {"credential_file_path": "/f"}, {"options.credentials_process": ["cat", "/f"]}),
    ],
)
def test_credentials_become_ours_and_replace_a_profile_of_aws(store, kind, credentials, values):
    options = {"profile_name": "p"} if store == "s3" else {}
    found, notes = made(store, options, credentials_provider={"type": kind, "options": credentials})
    assert (found, notes) == ({"url": f"{URLS[store]}bucket/base/"} | values, [])


URLS = {"s3": "s3://", "azure": "az://", "gcs": "gs://"}
KEYS = {"access_key": "a", "secret_key": "b"}


@pytest.mark.parametrize(
    ("store", "credentials", "says"),
    [
        ("s3", {"type": "mine.Provider", "options": {}}, "type: no credentials 'mine.Provider'; known: S3Cred"),
        (
            "s3",
            {"type": "S3Credential", "options": KEYS},
            "type: no credentials 'S3Credential': did you mean 'S3Creden",
        ),
        ("s3", {"type": "AzureCredentials", "options": {"connection": "c"}}, "'AzureCredentials' for s3://; known:"),
        ("gcs", {"type": "S3Credentials", "options": KEYS}, "no credentials 'S3Credentials' for gs://"),
        ("gcs", {"type": "GoogleIdentityPoolCredentialsProvider", "options": {}}, "no credentials 'GoogleIdentityPool"),
        ("ais", {"type": "AISCredentials", "options": {"token": "t"}}, "'AISCredentials': set AIS_AUTHN_TOKEN"),
        ("file", {"type": "S3Credentials", "options": KEYS}, "none is supported: remove credentials_provider"),
        ("s3", {"type": "S3Credentials"}, "options: S3Credentials needs access_key"),
        ("s3", {"type": "S3Credentials", "options": {"access_key": "a"}}, "options: S3Credentials needs secret_key"),
        ("s3", {"type": "S3Credentials", "options": KEYS | {"access_key": ""}}, "S3Credentials needs access_key"),
        (
            "s3",
            {"type": "S3Credentials", "options": KEYS | {"acess_key": "a"}},
            "options.acess_key: no such option here",
        ),
        ("azure", {"type": "DefaultAzureCredentials", "options": {"managed_identity_client_id": "x"}}, "has none"),
        ("gcs", {"type": "GoogleServiceAccountCredentialsProvider", "options": {}}, "needs file or info"),
        ("s3", {"options": KEYS}, "credentials_provider.type: no credentials ''"),
        ("s3", {}, "credentials_provider.type: no credentials ''"),
        ("s3", None, "credentials_provider.type: no credentials ''"),
        ("s3", "S3Credentials", "credentials_provider must be a mapping of keys, got str"),
        ("s3", {"type": "S3Credentials", "options": ["hushhush"]}, "options must be a mapping of keys, got list"),
    ],
)
def test_credentials_that_cannot_be_taken_are_refused_and_not_left_out(store, credentials, says):
    with pytest.raises(ConfigError) as refused:
        made(store, {}, credentials_provider=credentials)
    assert "/etc/msc_config.yaml: profiles.x.credentials_provider" in str(refused.value)
    assert says in str(refused.value)
    assert "hushhush" not in str(refused.value)


# Key of Multi-Storage Client 1.3.1's schema, in the order of schema.py, with those of `retry`, which its code reads ->
# what becomes of it, and a value that the schema takes. "quiet" has nothing to do with reading and writing.
SCHEMA = {
    "include": ("honoured", ["a.json"]),
    "experimental_features": ("refused", {"x": True}),
    "profiles": ("honoured", {}),
    "storage_provider": ("honoured", {"type": "s3", "options": {"base_path": "b"}}),
    "storage_provider.type": ("honoured", "gcs"),
    "storage_provider.options": ("honoured", {"base_path": "b"}),
    "storage_provider.options.base_path": ("honoured", "other/base"),
    "storage_provider.options.rust_client": ("noted", {"max_concurrency": 4}),
    "storage_provider.options.rdma": ("noted", {}),
    "storage_provider.options.rdma.multipart_chunksize": ("noted", 8),
    "replicas": ("refused", [{"replica_profile": "y", "read_priority": 1}]),
    "replicas[].replica_profile": ("refused", "y"),
    "replicas[].read_priority": ("refused", 1),
    "replicas[].read_only": ("refused", True),
    "credentials_provider": ("honoured", {"type": "S3Credentials", "options": {"access_key": "a", "secret_key": "b"}}),
    "credentials_provider.type": ("refused", "mine.Provider"),
    "credentials_provider.options": ("refused", {"token": "t"}),
    "metadata_provider": ("refused", {"type": "manifest"}),
    "metadata_provider.type": ("refused", "manifest"),
    "metadata_provider.options": ("refused", {"manifest_path": ".msc"}),
    "provider_bundle": ("refused", {"type": "m.Bundle"}),
    "provider_bundle.type": ("refused", "m.Bundle"),
    "provider_bundle.options": ("refused", {"a": 1}),
    "autocommit": ("noted", {}),
    "autocommit.interval_minutes": ("noted", 5),
    "autocommit.at_exit": ("noted", True),
    "comment": ("quiet", "text"),
    "caching_enabled": ("honoured", True),
    "storage_provider_profiles": ("refused", ["a", "b"]),
    "cache": ("honoured", {"size": "5G"}),
    "cache.size": ("honoured", "5G"),
    "cache.size_mb": ("refused", 500),
    "cache.location": ("honoured", "/nvme"),
    "cache.check_source_version": ("honoured", False),
    "cache.prefetch_file": ("noted", False),
    "cache.cache_line_size": ("honoured", "64M"),
    "cache.eviction_policy": ("noted", {"policy": "lru"}),
    "cache.eviction_policy.policy": ("noted", "lru"),
    "cache.eviction_policy.refresh_interval": ("noted", 5),
    "cache.eviction_policy.purge_factor": ("noted", 5),
    "cache.cache_backend": ("honoured", {"cache_path": "/nvme"}),
    "cache.cache_backend.cache_path": ("honoured", "/nvme"),
    "opentelemetry": ("honoured", {"metrics": {"exporter": {"type": "console"}}}),
    "opentelemetry.metrics": ("honoured", {"exporter": {"type": "console"}}),
    "opentelemetry.metrics.attributes": ("honoured", [{"type": "static", "options": {"attributes": {"a": "b"}}}]),
    "opentelemetry.metrics.attributes[].type": ("honoured", "static"),
    "opentelemetry.metrics.attributes[].options": ("honoured", {"attributes": {"a": "b"}}),
    "opentelemetry.metrics.reader": ("honoured", {"options": {"export_interval_millis": 5}}),
    "opentelemetry.metrics.reader.options": ("honoured", {"export_interval_millis": 5}),
    "opentelemetry.metrics.exporter": ("honoured", {"type": "console"}),
    "opentelemetry.metrics.exporter.type": ("honoured", "console"),
    "opentelemetry.metrics.exporter.options": ("honoured", {"endpoint": "http://127.0.0.1:9"}),
    "path_mapping": ("honoured", {"/x/": "msc://x/"}),
    "posix": ("quiet", {}),
    "posix.mountname": ("quiet", "a"),
    "posix.mountpoint": ("quiet", "/mnt"),
    "posix.allow_other": ("quiet", True),
    "posix.auto_sighup_interval": ("quiet", 5),
    "retry.attempts": ("honoured", 5),
    "retry.delay": ("honoured", 0.5),
    "retry.backoff_multiplier": ("noted", 2),
}
_TOP = ("include", "experimental_features", "profiles", "cache", "opentelemetry", "path_mapping", "posix")
# Beside a key: what the schema wants there, or what gives the key a meaning.
_BESIDE = {
    "metrics": {"exporter": {"type": "otlp"}},
    "attributes[]": {"type": "static", "options": {"attributes": {"a": "c"}}},
    "exporter": {"type": "otlp"},
}


def _nested(keys, value):
    """Return the tables that lead to a key, innermost first filled with what belongs beside it."""
    for depth in range(len(keys) - 1, -1, -1):
        name = keys[depth]
        value = {name.removesuffix("[]"): [value] if name.endswith("[]") else value}
        if depth:
            value = _BESIDE.get(keys[depth - 1], {}) | value
    return value


def _files(key, value):
    """Return a whole file in which a key has a value."""
    keys = key.split(".")
    found = _nested(keys, value)
    top = {name: found[name] for name in found if name in _TOP}
    profile = {"storage_provider": {"type": "s3", "options": {"base_path": "bucket"}}}
    for name, inner in found.items():
        if name == "storage_provider":
            provider = profile[name]
            profile[name] = provider | inner | {"options": provider["options"] | inner.get("options", {})}
        elif name == "credentials_provider" and "options" in inner and "type" not in inner:
            profile[name] = {"type": "S3Credentials"} | inner
        elif name not in _TOP:
            profile[name] = inner
    if keys[0] == "cache":
        profile["caching_enabled"] = True
    if keys[0] == "caching_enabled":
        top["cache"] = {}
    return top, profile


@pytest.mark.parametrize("key", SCHEMA)
def test_each_key_of_the_schema_is_honoured_noted_or_refused(key, home):
    fate, value = SCHEMA[key]
    top, profile = _files(key, value)
    (home / "a.json").write_text('{"profiles": {"y": {}}}')
    (home / ".msc_config.json").write_text(json.dumps(top | {"profiles": {"x": profile} | top.get("profiles", {})}))
    if fate == "refused":
        with pytest.raises(ConfigError) as refused:
            msc_tables("x", os.environ)
        assert key.partition(".")[0].removesuffix("[]") in str(refused.value)
        return
    (found,) = msc_tables("x", os.environ)
    notes = [each for each in found.notes if "path_mapping" not in each]
    if fate == "noted":
        assert len(notes) == 1
        assert notes[0].rpartition(".")[2] in key
        return
    assert notes == []
    (home / ".msc_config.json").write_text(json.dumps({"profiles": {"x": {"storage_provider": PLAIN}}}))
    before = msc_tables("x", os.environ)[0]
    changed = (found.values != before.values) or key in ("include", "profiles", "path_mapping")
    assert changed == (fate == "honoured")


PLAIN = {"type": "s3", "options": {"base_path": "bucket"}}


def _documented():
    """Return the keys that each row of the table in docs/profiles.md names, by its second column."""
    text = (Path(__file__).parents[3] / "docs/profiles.md").read_text("utf-8")
    table = text.partition("### Every key")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    found = {}
    for names, fate in rows:
        for name in re.findall(r"`([^`]+)`", names):
            assert name not in found, name
            found[name] = fate.strip()
    return found


def test_each_key_of_the_schema_is_documented_with_its_fate():
    documented = {name: fate for name, fate in _documented().items() if not name.startswith("options.")}
    assert documented == {key: fate for key, (fate, _) in SCHEMA.items()}


# Options that the constructors of Multi-Storage Client 1.3.1's storage providers take: honoured, noted, refused.
OPTIONS = {
    "s3": (
        {
            "region_name": "r",
            "endpoint_url": "http://h",
            "profile_name": "p",
            "verify": False,
            "connect_timeout": 3,
            "read_timeout": 3,
            "max_pool_connections": 3,
            "s3": {"addressing_style": "path", "use_accelerate_endpoint": True},
        },
        {
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
            "retries": {},
            "checksum_algorithm": "CRC32",
            "multipart_threshold": 5,
            "max_concurrency": 5,
            "multipart_chunksize": 5,
            "io_chunksize": 5,
        },
        {"signature_version": "s3", "infer_content_type": True},
    ),
    "gcs": (
        {"endpoint_url": "http://h", "skip_signature": True},
        {"project_id": "p", "verify": False, "multipart_threshold": 5, "max_pool_connections": 5},
        {},
    ),
    "azure": (
        {"endpoint_url": "https://a"},
        {"validate_content": True, "retry_total": 5, "connection_timeout": 5, "read_timeout": 5},
        {},
    ),
    "oci": ({"namespace": "n"}, {"retry_strategy": {}, "timeout": 5}, {}),
    "ais": (
        {"endpoint": "http://h", "skip_verify": True, "ca_cert": "/ca"},
        {"timeout": 5, "retry": {}},
        {"provider": "aws"},
    ),
    "file": ({}, {"anything": 1}, {}),
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_each_option_of_a_storage_provider_is_honoured_noted_or_refused(kind):
    honoured, noted, refused = OPTIONS[kind]
    plain = set(made(kind, {})[0])
    for name, value in honoured.items():
        found, notes = made(kind, {name: value})
        assert (len(found) > len(plain), notes) == (True, []), name
    for name, value in noted.items():
        found, notes = made(kind, {name: value})
        assert (set(found), notes) == (plain, [f"storage_provider.options.{name}"])
    for name, value in refused.items():
        with pytest.raises(ConfigError, match=rf"profiles\.x\.storage_provider\.options\.{name}: must be"):
            made(kind, {name: value})
    documented = _documented()
    fates = dict.fromkeys(honoured, "honoured") | dict.fromkeys(noted, "noted")
    for name, fate in (fates | dict.fromkeys(refused, "refused")).items():
        if (kind, name) not in {
            ("gcs", "verify"),
            ("gcs", "max_pool_connections"),
            ("azure", "read_timeout"),
            ("file", "anything"),
        }:
            assert documented[f"options.{name}"] == fate, name


def test_defaults_that_are_written_out_change_nothing():
    options = {"signature_version": "s3v4", "infer_content_type": False, "endpoint_url": "", "region_name": None}
    assert made("s3", options) == ({"url": "s3://bucket/base/"}, [])
    assert made("ais", {"provider": "ais"}) == ({"url": "ais://bucket/base/"}, [])
    assert made("s3", {}, replicas=[], metadata_provider=None) == ({"url": "s3://bucket/base/"}, [])


def test_identity_and_place_below_rust_client_are_refused():
    for name in ("bucket", "endpoint_url", "skip_signature", "service_account_key", "aws_access_key_id"):
        with pytest.raises(ConfigError, match=rf"options\.rust_client\.{name}: only tuning is allowed here"):
            made("s3", {"rust_client": {name: "x"}})


@pytest.mark.parametrize("kind", ["s3", "gcs"])
def test_rust_client_may_allow_http_name_a_checksum_and_skip_the_signature(kind):
    rust = {"allow_http": True, "checksum_algorithm": "SHA256", "skip_signature": True}
    found, notes = made(kind, {"rust_client": rust})
    assert found["options.anonymous"] is True
    assert notes == ["storage_provider.options.rust_client"]
    assert made(kind, {"skip_signature": True})[0]["options.anonymous"] is True


def test_unused_and_misspelled_keys_are_reported_by_key_path():
    found, notes = made(
        "s3",
        {"io_chunk_size": 3, "multipart_threshold": 5, "rust_client": {}},
        retry={"attempts": 5, "delay": 0.5, "backoff_multiplier": 2},
        caching_enabled=True,
        comment="fine",
        storage_providr={},
    )
    assert found == {"url": "s3://bucket/base/", "retry.attempts": 5, "retry.base_s": 0.5}
    assert notes == [
        "storage_provider.options.io_chunk_size",
        "storage_provider.options.multipart_threshold",
        "storage_provider.options.rust_client",
        "retry.backoff_multiplier",
        "caching_enabled (there is no table cache)",
        "storage_providr",
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"path_maping": {"/a/": "msc://x/"}}, "unknown section 'path_maping': did you mean 'path_mapping'"),
        ({"opentelmetry": {}}, "unknown section 'opentelmetry': did you mean 'opentelemetry'"),
        ({"include": "a.json"}, "include must be a list of paths, got 'a.json'"),
        ({"include": ["nested.json"]}, "nested.json: include: an included file cannot include others"),
        ({"include": ["other.json"], "cache": {"size": "1G"}}, "cache is defined in"),
        ({"include": ["other.json"], "path_mapping": {"/a/": "msc://x/"}}, "path_mapping./a/ is defined in"),
        ({"include": ["other.json"], "opentelemetry": {"metrics": {"reader": {}}}}, "opentelemetry is defined in"),
        ({"profiles": ["x"]}, "profiles must be a mapping of keys, got list"),
        ({"path_mapping": "x"}, "path_mapping must be a mapping of keys, got str"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(home, content, says):
    other = {"cache": {}, "path_mapping": {"/a/": "msc://y/"}, "opentelemetry": {"metrics": {}}}
    (home / "other.json").write_text(json.dumps(other))
    (home / "nested.json").write_text('{"include": ["other.json"]}')
    (home / ".msc_config.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError) as refused:
        msc_mappings(os.environ)
        _names(os.environ)
    assert says in str(refused.value)


def test_attributes_of_metrics_are_those_of_all_files(home):
    def metrics(name):
        attributes = [{"type": "static", "options": {"attributes": {name: "1"}}}]
        return {"metrics": {"attributes": attributes, "exporter": {"type": "console"}}}

    (home / "a.json").write_text(json.dumps({"opentelemetry": metrics("a")}))
    content = {"include": ["a.json"], "opentelemetry": metrics("b"), "profiles": {"x": {"storage_provider": PLAIN}}}
    (home / ".msc_config.json").write_text(json.dumps(content))
    (found,) = msc_tables("x", os.environ)
    assert {key for key in found.values if "attributes" in key} == {"telemetry.attributes.a", "telemetry.attributes.b"}


def test_names_of_implicit_profiles_are_not_defined_anew(home):
    disk = {"storage_provider": {"type": "file", "options": {"base_path": "/data"}}}
    root = {"storage_provider": {"type": "file", "options": {"base_path": "/"}}}
    profiles = {"__filesystem__": disk, "_s3-bucket": disk}
    (home / ".msc_config.json").write_text(json.dumps({"profiles": profiles}))
    for name in profiles:
        with pytest.raises(ConfigError, match="names that begin with '_' are reserved"):
            msc_tables(name, os.environ)
    (home / ".msc_config.json").write_text(json.dumps({"profiles": {"__filesystem__": root}}))
    assert msc_tables("__filesystem__", os.environ)[0].values["url"].raw == "file:///"


def test_a_remote_of_rclone_does_not_stand_for_a_profile_of_its_name(home):
    (home / ".msc_config.json").write_text(json.dumps({"profiles": {"x": {"storage_provider": PLAIN}}}))
    (home / ".rclone.conf").write_text("[x]\ntype = s3\nendpoint = http://127.0.0.1:9\n")
    with pytest.raises(
        ConfigError, match=r"profile 'x' is defined in .*msc_config.json and, in another way, in .*rclone"
    ):
        _names(os.environ)


def test_no_file_is_looked_for_in_the_working_directory(home, monkeypatch):
    monkeypatch.chdir(home)
    (home / "msc").mkdir()
    for name in (".msc_config.json", "msc_config.json", "msc/config.json", ".config/msc/config.json"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("{}")
    (home / "rclone").write_text("#!/bin/sh\n")
    (home / "rclone").chmod(0o755)
    (home / "rclone.conf").write_text("[x]\ntype = s3\n")
    relative = {"HOME": ".", "XDG_CONFIG_HOME": ".", "XDG_CONFIG_DIRS": ".: :", "PATH": "."}
    for environ in ({}, relative, {"PATH": ""}, {"PATH": ":/bin"}):
        assert msc_files({"PATH": "/bin"} | environ) == ()
    (home / "named.json").write_text("{}")
    assert [each.path for each in msc_files({"PATH": "/bin", "MSC_CONFIG": "named.json"})] == [str(home / "named.json")]


def test_a_blank_file_has_no_profiles(home):
    for text in ("", "# nothing yet\n"):
        (home / ".msc_config.yaml").write_text(text)
        assert (_names(os.environ), msc_mappings(os.environ)) == ([], ())
        assert msc_tables("__filesystem__", os.environ)[0].values["url"].raw == "file:///"


CACHE = {"size": "500G", "location": "/nvme/msc/", "cache_line_size": "64M"}


@pytest.mark.parametrize(
    ("cache", "values", "notes"),
    [
        ({}, {"cache.size_bytes": "10G", "cache.mode": "revalidate"}, []),
        (
            CACHE | {"check_source_version": False},
            {
                "cache.path": "/nvme/msc/penstock",
                "cache.mode": "immutable",
                "cache.size_bytes": "500G",
                "cache.block_bytes": "64M",
            },
            [],
        ),
        ({"use_etag": False}, {"cache.size_bytes": "10G", "cache.mode": "immutable"}, []),
        (
            {"cache_backend": {"cache_path": "/a"}, "eviction_policy": {"policy": "lru"}, "prefetch_file": False},
            {"cache.path": "/a/penstock", "cache.size_bytes": "10G", "cache.mode": "revalidate"},
            ["cache.eviction_policy", "cache.prefetch_file"],
        ),
    ],
    ids=["defaults", "all", "the older name", "a backend"],
)
def test_a_cache_that_a_profile_enables_is_one_here(cache, values, notes):
    provider = {"storage_provider": {"type": "file", "options": {"base_path": "/"}}}
    found = translate_profile("x", provider | {"caching_enabled": True}, "f", {"cache": cache})
    assert {key: each.raw for key, each in found.values.items() if key != "url"} == values
    assert found.notes == tuple(notes)
    found = translate_profile("x", provider, "f", {"cache": cache})
    assert ([*found.values], found.notes) == (["url"], ())


def test_caching_disabled_in_profile_sets_cache_mode_off():
    content = {"storage_provider": {"type": "file", "options": {"base_path": "/"}}, "caching_enabled": False}
    for top in ({}, {"cache": CACHE}):
        found = translate_profile("x", content, "f", top)
        assert {key: each.raw for key, each in found.values.items() if key != "url"} == {"cache.mode": "off"}
        assert found.notes == ()


def test_an_included_profile_has_the_cache_of_the_file_that_includes_it(home):
    (home / ".msc_config.json").write_text(json.dumps({"include": ["a.json"], "cache": CACHE}))
    profile = {"storage_provider": {"type": "s3", "options": {"base_path": "b"}}, "caching_enabled": True}
    (home / "a.json").write_text(json.dumps({"profiles": {"x": profile}}))
    (found,) = msc_tables("x", os.environ)
    assert found.values["cache.size_bytes"].raw == "500G"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"storage_provider": {"type": "s4", "options": {}}}, "profiles.x.storage_provider.type: no provider 's4'"),
        ({"storage_provider": {"type": "huggingface", "options": {}}}, "no provider 'huggingface'; Penstock has s3"),
        ({"provider_bundle": {"type": "m.C"}}, "provider_bundle is run by Multi-Storage Client's own code"),
        ({"storage_provider_profiles": ["a"]}, "storage_provider_profiles is run by"),
        ({}, "storage_provider is missing"),
    ],
)
def test_unsupported_or_missing_storage_provider_raises_config_error(content, says):
    with pytest.raises(ConfigError) as refused:
        translate_profile("x", content, "f.yaml", {})
    assert says in str(refused.value)


def test_files_include_others_once_and_profiles_are_defined_once(home):
    one = {"storage_provider": {"type": "file", "options": {"base_path": "/one"}}}
    (home / "inner.json").write_text(json.dumps({"profiles": {"one": one, "two": one}}))
    main = home / ".msc_config.json"
    main.write_text(json.dumps({"include": ["inner.json"], "profiles": {"one": one}}))
    assert _names(os.environ) == ["one", "two"]
    assert [each.path for each in msc_files(os.environ)] == [str(main), str(home / "inner.json")]
    assert msc_tables("two", os.environ)[0].origin == f"{home}/inner.json: profiles.two"
    main.write_text(json.dumps({"include": ["inner.json"], "profiles": {"one": {"comment": "another"}}}))
    with pytest.raises(ConfigError, match=r"profile 'one' is defined in .*msc_config.json and, in another way, in"):
        _names(os.environ)


def test_implicit_profiles_need_no_file(home):
    for name, url in (
        ("_s3-bucket", "s3://bucket/"),
        ("_gs-my-bucket", "gs://my-bucket/"),
        ("__filesystem__", "file:///"),
    ):
        assert msc_tables(name, os.environ)[0].values["url"].raw == url
    with pytest.raises(ConfigError, match="has no profile '_s4-bucket'; its files have no profile"):
        msc_tables("_s4-bucket", os.environ)
    (home / ".msc_config.yaml").write_text("profiles:\n  train: {}\n")
    with pytest.raises(ConfigError, match="has no profile 'tarin': did you mean 'train'"):
        msc_tables("tarin", os.environ)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", "profiles:\n  x: {secret: hushhush\n y", "is not YAML: an error in line 3"),
        ("a.yaml", "!!python/object/apply:os.system ['hushhush']", "is not YAML: an error in line 1"),
        ("a.yaml", "- hushhush", "is not a mapping of keys"),
        ("a.json", "", "is not JSON"),
        ("a.json", "null", "is not a mapping of keys"),
        ("a.json", "{'hushhush'", "is not JSON"),
    ],
)
def test_a_file_that_cannot_be_read_is_not_quoted(home, name, text, says):
    (home / name).write_text(text)
    with pytest.raises(ConfigError) as refused:
        _names({"MSC_CONFIG": str(home / name)})
    assert says in str(refused.value)
    assert "hushhush" not in str(refused.value)
    assert refused.value.__cause__ is refused.value.__context__ is None
