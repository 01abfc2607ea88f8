"""Every fault says truly when it happens and to what, and breaks one thing only, so that a test knows what it met."""

from http import HTTPStatus

import pytest

from penstock.testing.faults import FAULTS, VERBS, Fault

NO_BODY = {"head", "put", "delete", "part", "abort"}  # requests whose answer S3 sends without a body

every_fault = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)


@every_fault
def test_a_fault_is_found_by_its_name_and_happens_to_requests_that_exist(fault):
    assert FAULTS[fault.name] is fault
    assert fault.about
    assert " " not in fault.name
    assert fault.verbs
    assert fault.verbs <= VERBS


@every_fault
def test_a_fault_breaks_one_thing_only(fault):
    breaks = {
        "refuses": fault.status,
        "breaks off": fault.cut,
        "changes": fault.change,
        "length": fault.longer,
        "repeats": fault.copies > 1,
        "slow": fault.bytes_per_s,
        "headers": fault.headers and not fault.status,
    }
    assert sum(map(bool, breaks.values())) == 1, breaks
    assert not fault.undone or fault.cut == "start", "where something is answered, something was done"
    assert not fault.code or fault.status


@every_fault
def test_a_fault_of_the_answers_body_happens_to_answers_with_one(fault):
    if fault.cut == "body" or fault.longer:
        assert not fault.verbs & NO_BODY
    if fault.change in ("whole", "part", "next"):
        assert fault.ranged
        assert fault.verbs == {"get"}
    if fault.change == "garbage":
        assert not fault.verbs & (NO_BODY | {"get"}), "what is no XML would be an object's bytes"


@every_fault
def test_a_refusal_has_a_status_of_http_and_a_region_is_named_by_a_refusal_only(fault):
    assert not fault.status or HTTPStatus(fault.status)
    assert not fault.region or fault.code
    assert (fault.status == 200) == (fault.name == "error-200")


def test_fault_defaults_change_nothing_and_match_all_verbs():
    nothing = Fault(name="", about="")
    assert (nothing.status, nothing.cut, nothing.change, nothing.longer, nothing.copies) == (0, "", "", 0, 1)
    assert nothing.verbs == VERBS
