"""A step takes Penstock's errors as findings, lets others through, and shows no control character."""

import pytest

from penstock.cli.findings import Finding, step
from penstock.errors import NotFound, Unsupported


def test_an_error_is_a_finding_and_an_unsupported_verb_is_skipped():
    with step("read") as read:
        raise NotFound("no such key", url="s3://b/k")
    assert (read.outcome, read.detail) == ("failed", "no such key [s3://b/k]")
    assert isinstance(read.error, NotFound)
    with step("copy") as copied:
        raise Unsupported("the store cannot copy")
    assert (copied.outcome, copied.detail) == ("skipped", "the store cannot copy")


def test_bugs_and_keyboard_interrupts_propagate_out_of_a_step():
    for kind in (ValueError, KeyboardInterrupt):
        with pytest.raises(kind), step("read"):
            raise kind


def test_a_servers_text_cannot_steer_the_terminal():
    with step("list") as finding:
        finding.warn("\x1b[2Jgone")
    assert finding == Finding("list", "warned", "\\x1b[2Jgone", finding.elapsed_s)
