"""An upload is a random name that carries its object's attributes; headers hold what the service takes."""

from base64 import b64decode

import pytest

from penstock.engine.contracts.driver import Attributes, UploadPart
from penstock.errors import Unusable
from penstock.stores.azure.driver import (
    block_id,
    block_list,
    conditions,
    described_in,
    encode_attributes,
    make_match_header,
    new_upload,
)


def test_ids_of_blocks_are_of_one_length_and_of_one_upload():
    uploads = [new_upload(Attributes("text/plain", {"a": "größer"})) for _ in range(2)]
    ids = [block_id(upload, UploadPart(number, 0)) for upload in uploads for number in (1, 9, 50_000)]
    assert len(set(ids)) == 6
    assert {len(b64decode(each)) for each in ids} == {32}
    assert {len(each) for each in ids} == {44}


def test_an_upload_carries_its_attributes():
    attributes = Attributes("text/plain", {"note": "größer, 日本"}, create_only=True)
    assert described_in(new_upload(attributes)) == encode_attributes(attributes)
    assert encode_attributes(attributes)["x-ms-blob-content-type"] == "text/plain"


def test_the_list_of_blocks_is_in_order():
    assert block_list(["Yg==", "YQ=="]).endswith(
        b"<BlockList><Latest>Yg==</Latest><Latest>YQ==</Latest></BlockList>",
    )


@pytest.mark.parametrize("name", ["with-hyphen", "1st", "dot.ted", "é", "", "sp ace"])
def test_names_of_metadata_are_identifiers(name):
    with pytest.raises(Unusable, match="names of metadata"):
        encode_attributes(Attributes("text/plain", {name: "x"}))


def test_conditions():
    assert conditions(create_only=True, replaces="") == {"if-none-match": "*"}
    assert conditions(create_only=False, replaces="0x8D") == {"if-match": '"0x8D"'}
    assert conditions(create_only=False, replaces="") == {}
    assert make_match_header("if-match", "not\none") == {}
