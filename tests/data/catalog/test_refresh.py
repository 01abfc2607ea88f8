"""A refresh lists only keys after the last one, and refuses a catalog of which it cannot tell what is new."""

import penstock as ps
from penstock.errors import Unusable
from tests.refusals import refused


def test_refresh_finds_keys_that_sort_after_the_last_key(bucket):
    def put(key, data):
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=data)

    for at in range(5):
        put(f"log/{at:04}", b"x")
    old = ps.Catalog.scan(f"{bucket.url}log/", store=bucket.store)
    assert old.refresh(store=bucket.store) is old
    put("log/0009", b"yy")
    put("log/0000a", b"not noticed")
    new = old.refresh(store=bucket.store)
    assert [entry.key for entry in new] == [*(entry.key for entry in old), "log/0009"]
    assert new.sizes.tolist() == [1] * 5 + [2]


def test_refresh_refuses_unsupported_catalogs_with_the_reason(tree):
    scanned = ps.Catalog.scan(f"{tree}/")
    refused(Unusable, "not in order", scanned[::-1].refresh)
    refused(Unusable, "labels=", scanned.refresh, labels="folder")
    refused(Unusable, "labels=", scanned.with_labels("folder").refresh)
    refused(Unusable, "labels=", scanned.with_columns(a=[1] * 30).refresh)
    refused(Unusable, "below", scanned.refresh, "memory://other/")
    assert list(scanned[:0].refresh()) == list(scanned)
    labelled = scanned[:12].with_labels("folder").refresh(labels="folder")
    assert list(labelled) == list(scanned.with_labels("folder"))
