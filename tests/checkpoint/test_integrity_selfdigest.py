"""A text that bears its own digest tells what it is, what it is not, and when it never had one."""

from __future__ import annotations

import pytest

from penstock.checkpoint.integrity import BLANK, document, stored_digest, with_digest

TEXT = b'{"a":1,"the.mark":"%b","beside":"x"}' % BLANK.encode()
BESIDE = b'"beside":"'


def test_a_mark_is_of_all_but_itself():
    raw, digest = with_digest(TEXT, "the.mark")
    assert raw == TEXT.replace(BLANK.encode(), digest.encode())
    assert stored_digest(raw, "the.mark", BESIDE) == digest
    assert with_digest(TEXT.replace(b"1", b"2"), "the.mark")[1] != digest


def test_document_without_a_digest_is_accepted():
    assert stored_digest(b'{"a":1}', "the.mark", BESIDE) == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw.replace(b'"a":1', b'"a":2'),
        lambda raw: raw.replace(b"the.mark", b"the.nark"),
        lambda raw: raw.replace(b"beside", b"beyond"),
        lambda raw: raw + raw,
        lambda _: TEXT,
    ],
    ids=["text", "mark", "beside", "twice", "blank"],
)
def test_changed_document_with_a_digest_is_refused(change):
    raw, _ = with_digest(TEXT, "the.mark")
    with pytest.raises(ValueError, match="digest does not match"):
        stored_digest(change(raw), "the.mark", BESIDE)


def test_a_name_that_comes_twice_is_refused_at_any_depth():
    assert document(b'{"a":{"b":1}}') == {"a": {"b": 1}}
    with pytest.raises(ValueError, match="'b' occurs twice"):
        document(b'{"a":{"b":1,"b":2}}')
