"""``msc://`` URLs work by Multi-Storage Client's own files, in every process, and unused keys are told once."""

import logging
import uuid

import pytest

import penstock as ps
from penstock.errors import ConfigError, InvalidURL
from penstock.stores.profiles import lookup
from penstock.stores.urls import parse
from tests.children import python
from tests.edges.launch import program
from tests.observe.test_otel_sink import points_of, printed


@pytest.fixture
def yaml(tmp_path, monkeypatch):
    monkeypatch.setenv("MSC_CONFIG", str(tmp_path / "msc.yaml"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(lookup, "_warned", set())

    def write(text):
        (tmp_path / "msc.yaml").write_text(text)

    return write


TRAINING = """
import penstock as ps

def data(sample):
    return sample.url, bytes(sample.data)

if __name__ == "__main__":
    dataset = ps.MapDataset.from_prefix("msc://moto/train/", transform=data)
    for how in ("fork", "spawn"):
        loader = ps.DataLoader(dataset, batch_size=1, num_workers=1, multiprocessing_context=how, collate_fn=list)
        assert list(loader) == [[("msc://moto/train/1", b"x")]]
"""

DISK = """
profiles:
  disk:
    storage_provider: {type: file, options: {base_path: %s}}
    caching_enabled: true
    io_chunk_size: 3
  other:
    storage_provider: {type: s3, options: {base_path: bucket, endpoint_url: "${NOT_SET_ANYWHERE}"}}
"""


def test_msc_profile_is_usable_and_unused_keys_are_logged_once(yaml, tmp_path, caplog):
    yaml(DISK % (tmp_path / "data"))
    with caplog.at_level(logging.WARNING, "penstock"):
        with ps.open("msc://disk/a/b", "wb") as file:
            file.write(b"x")
        dataset = ps.MapDataset.from_prefix("msc://disk/a/")
    assert (tmp_path / "data/a/b").read_bytes() == b"x"
    assert (dataset[0].url, bytes(dataset[0].data)) == ("msc://disk/a/b", b"x")
    told = [each.getMessage() for each in caplog.records]
    unused = "caching_enabled (there is no table cache), io_chunk_size"
    assert told == [f"{tmp_path}/msc.yaml: profiles.disk has keys that Penstock does not use: {unused}"]


def test_only_the_used_profile_s_variables_are_expanded(yaml, tmp_path, monkeypatch):
    yaml(DISK % "$DATA")
    monkeypatch.setenv("DATA", str(tmp_path / "data"))
    assert not [*ps.list("msc://disk/")]
    with pytest.raises(ConfigError, match=r"other.storage_provider.options.endpoint_url: the variable NOT_SET"):
        parse("msc://other/x")


def test_a_training_reads_by_its_profile_in_a_spawned_worker(yaml, moto_server, tmp_path):
    client, bucket = moto_server.client(), f"msc-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=bucket)
    client.put_object(Bucket=bucket, Key="base/train/1", Body=b"x")
    yaml(f"""
profiles:
  moto:
    storage_provider:
      type: s3
      options: {{base_path: {bucket}/base, endpoint_url: {moto_server.endpoint}, region_name: us-east-1}}
    credentials_provider:
      type: S3Credentials
      options: {{access_key: {moto_server.access_key}, secret_key: $SECRET}}
    retry: {{attempts: 3, delay: 0.1}}
""")
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    told = program(script, SECRET=moto_server.secret_key)
    assert told.returncode == 0, told


def test_a_profile_without_a_bucket_has_it_in_the_url(yaml, tmp_path):
    (tmp_path / ".rclone.conf").write_text("[remote]\ntype = s3\nendpoint = http://127.0.0.1:9\n")
    yaml("profiles: {}\n")
    found = parse("msc://remote/bucket/a/b")
    assert (found.bucket, found.key, found.url) == ("remote/bucket", "a/b", "msc://remote/bucket/a/b")
    assert found.store.target == "s3://bucket/"
    assert found.store.defaults.endpoint == "http://127.0.0.1:9"
    with pytest.raises(ConfigError, match="names no bucket: write msc://remote/bucket/key"):
        parse("msc://remote/")


def test_implicit_profiles_need_no_file(yaml, tmp_path):
    yaml("profiles: {}\n")
    (tmp_path / "x").write_bytes(b"x")
    assert ps.open(f"msc://__filesystem__{tmp_path}/x").read() == b"x"
    assert parse("msc://_s3-bucket/x").store.target == "s3://bucket/"


def test_invalid_profile_error_names_the_config_file(yaml):
    yaml("profiles: {x: {storage_provider: {type: huggingface, options: {base_path: m}}}}\n")
    with pytest.raises(ConfigError, match=r"msc.yaml: profiles.x.storage_provider.type: no provider 'huggingface'"):
        ps.open("msc://x/y")
    with pytest.raises(ConfigError, match=r"has no profile 'y'; profiles are x"):
        ps.open("msc://y/z")
    with pytest.raises(InvalidURL, match="credentials and ports"):
        ps.open("msc://k:s@x/z")


TELEMETRY = """
profiles:
  disk:
    storage_provider: {type: file, options: {base_path: %s}}
opentelemetry:
  metrics:
    attributes:
      - {type: static, options: {attributes: {cluster: one}}}
      - {type: thread, options: {attributes: {thread: native_id}}}
    exporter: {type: console}
"""


def test_opentelemetry_section_exports_metrics_and_reports_unsupported_attributes(yaml, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/key").write_bytes(b"x")
    yaml(TELEMETRY % (tmp_path / "data"))
    result = python("import penstock as ps; print(ps.stat('msc://disk/key').size)")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("1\n")
    points = points_of(printed(result.stdout.partition("\n")[2]))
    assert points["multistorageclient.requests"][0]["cluster"] == "one"
    assert result.stderr.count("opentelemetry.metrics.attributes.thread (thread)") == 1
