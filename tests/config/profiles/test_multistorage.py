"""Multi-Storage Client's files mean here what they mean there; what they do not, is named."""

import json
import os

import pytest

from penstock.config.profiles.multistorage import candidates, msc_files, msc_names, msc_tables, translated
from penstock.errors import ConfigError


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "system"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def made(kind, options, **profile):
    content = {"storage_provider": {"type": kind, "options": {"base_path": "bucket/base"} | options}} | profile
    found = translated("x", content, "/etc/msc_config.yaml", {})
    return {key: each.raw for key, each in found.values.items()}, list(found.notes)


def test_files_are_looked_for_where_it_looks_for_them(home):
    assert [*candidates({"MSC_CONFIG": "/a/b.json", "HOME": "/h"})] == ["/a/b.json"]
    order = [*candidates({"HOME": "/h", "XDG_CONFIG_HOME": "/x", "XDG_CONFIG_DIRS": "/s:/t"})]
    stems = ["/x/msc/config", "/h/.msc_config", "/h/.config/msc/config", "/s/msc/config", "/t/msc/config"]
    assert order == [f"{stem}.{end}" for stem in (*stems, "/etc/msc_config") for end in ("yaml", "json")]
    assert msc_names(os.environ) == []
    (home / ".msc_config.json").write_text('{"profiles": {"late": {}}}')
    (home / ".msc_config.yaml").write_text("profiles:\n  first: {}\n")
    assert msc_names(os.environ) == ["first"]
    with pytest.raises(ConfigError, match=r"MSC_CONFIG names '/nowhere.yaml', which is no file"):
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
            {
                "url": "ais://bucket/base/",
                "options.endpoint": "http://g",
                "transport.verify": False,
            },
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
    ("kind", "credentials", "values"),
    [
        (
            "S3Credentials",
            {"access_key": "a", "secret_key": "$S"},
            {"options.access_key": "a", "options.secret_key": "${S}"},
        ),
        ("AzureCredentials", {"connection": "c"}, {"options.connection_string": "c"}),
        ("DefaultAzureCredentials", {}, {}),
        ("GoogleServiceAccountCredentialsProvider", {"info": {"a": 1}}, {"options.credentials_json": '{"a": 1}'}),
        ("FileBasedCredentials", {"credential_file_path": "/f"}, {"options.credentials_process": ["cat", "/f"]}),
    ],
)
def test_credentials_become_ours_and_replace_a_profile_of_aws(kind, credentials, values):
    found, notes = made("s3", {"profile_name": "p"}, credentials_provider={"type": kind, "options": credentials})
    assert (found, notes) == ({"url": "s3://bucket/base/"} | values, [])


def test_what_means_nothing_here_is_named_by_its_key():
    found, notes = made(
        "s3",
        {"io_chunk_size": 3, "multipart_threshold": 5, "rust_client": {}},
        retry={"attempts": 5, "delay": 0.5, "backoff_multiplier": 2},
        credentials_provider={"type": "mine.Provider", "options": {}},
        caching_enabled=True,
        replicas=[],
        comment="fine",
        storage_providr={},
    )
    assert found == {"url": "s3://bucket/base/", "retry.attempts": 5, "retry.base_s": 0.5}
    assert notes == [
        "storage_provider.options.io_chunk_size",
        "storage_provider.options.multipart_threshold",
        "storage_provider.options.rust_client",
        "credentials_provider.type (mine.Provider)",
        "retry.backoff_multiplier",
        "caching_enabled (there is no table cache)",
        "replicas",
        "storage_providr",
    ]
    provider = {"storage_provider": {"type": "file", "options": {"base_path": "/"}}, "caching_enabled": False}
    top = {"profiles": {}, "cache": {}, "posix": {}, "path_mapping": {}, "opentelmetry": {}}
    assert translated("x", provider, "f", top).notes == ("opentelmetry",)


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
    found = translated("x", provider | {"caching_enabled": True}, "f", {"cache": cache})
    assert {key: each.raw for key, each in found.values.items() if key != "url"} == values
    assert found.notes == tuple(notes)
    found = translated("x", provider, "f", {"cache": cache})
    assert ([*found.values], found.notes) == (["url"], ())


def test_a_profile_that_refuses_the_cache_has_none_whatever_the_environment_says():
    content = {"storage_provider": {"type": "file", "options": {"base_path": "/"}}, "caching_enabled": False}
    for top in ({}, {"cache": CACHE}):
        found = translated("x", content, "f", top)
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
        ({}, "it has no storage_provider"),
    ],
)
def test_what_cannot_be_carried_out_is_an_error(content, says):
    with pytest.raises(ConfigError) as refused:
        translated("x", content, "f.yaml", {})
    assert says in str(refused.value)


def test_files_include_others_once_and_profiles_are_defined_once(home):
    one = {"storage_provider": {"type": "file", "options": {"base_path": "/one"}}}
    (home / "inner.json").write_text(json.dumps({"profiles": {"one": one, "two": one}}))
    main = home / ".msc_config.json"
    main.write_text(json.dumps({"include": ["inner.json"], "profiles": {"one": one}}))
    assert msc_names(os.environ) == ["one", "two"]
    assert [each.path for each in msc_files(os.environ)] == [str(main), str(home / "inner.json")]
    assert msc_tables("two", os.environ)[0].origin == f"{home}/inner.json: profiles.two"
    main.write_text(json.dumps({"include": ["inner.json"], "profiles": {"one": {"comment": "another"}}}))
    with pytest.raises(ConfigError, match=r"profile 'one' is defined in .*msc_config.json and, in another way, in"):
        msc_names(os.environ)


def test_implicit_profiles_need_no_file(home):
    for name, url in (
        ("_s3-bucket", "s3://bucket/"),
        ("_gs-my-bucket", "gs://my-bucket/"),
        ("__filesystem__", "file:///"),
    ):
        assert msc_tables(name, os.environ)[0].values["url"].raw == url
    with pytest.raises(ConfigError, match="has no profile '_s4-bucket'; no file of its has any"):
        msc_tables("_s4-bucket", os.environ)
    (home / ".msc_config.yaml").write_text("profiles:\n  train: {}\n")
    with pytest.raises(ConfigError, match="has no profile 'tarin': did you mean 'train'"):
        msc_tables("tarin", os.environ)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", "profiles:\n  x: {secret: hushhush\n y", "is not YAML: an error in line 3"),
        ("a.yaml", "!!python/object/apply:os.system ['hushhush']", "is not YAML: an error in line 1"),
        ("a.yaml", "- hushhush", "is no mapping of keys"),
        ("a.yaml", "", "is empty"),
        ("a.json", "{'hushhush'", "is not JSON"),
    ],
)
def test_a_file_that_cannot_be_read_is_not_quoted(home, name, text, says):
    (home / name).write_text(text)
    with pytest.raises(ConfigError) as refused:
        msc_names({"MSC_CONFIG": str(home / name)})
    assert says in str(refused.value)
    assert "hushhush" not in str(refused.value)
    assert refused.value.__cause__ is refused.value.__context__ is None
