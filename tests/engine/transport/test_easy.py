"""Bodies land in their memory byte for byte and nowhere else; what is sent is what was given."""

import re
from hashlib import sha256
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.buffer import Buffer
from penstock.engine.contracts.exchange import TEXT_BYTES, Request
from penstock.engine.transport import easy
from penstock.engine.transport.loop import connect
from penstock.engine.transport.stream import fwrite
from penstock.errors import Bug, Unusable
from penstock.options import TransportOptions
from penstock.testing.servers import Scripted, reply
from penstock.version import VERSION
from tests.children import python
from tests.engine.transport.calls import Once, answering, carry, get

SIZES = [0, 1, 2, 4095, 4096, 4097, 16_384, 16_385, 65_536, 1 << 20]
EDGE = 64
SMALL = 16 << 10  # up to here a body is copied into its place


@pytest.fixture(scope="module")
def session():
    return connect(TransportOptions())


@pytest.fixture(scope="module")
def echo():
    """Answer with as many bytes as the path says, or with the digest of what was sent."""

    def script(received, send):
        if received.method == "GET":
            send(reply(200, _body(int(received.path[1:]))))
        else:
            send(reply(200, b"" if received.method == "HEAD" else sha256(received.body).hexdigest().encode()))
        return True

    with Scripted(script) as server:
        yield server


def _body(size):
    return np.random.default_rng(size).integers(1, 256, size, dtype=np.uint8).tobytes()  # never a zero


@pytest.mark.parametrize("size", SIZES)
def test_every_byte_is_kept_and_no_neighbour_touched(session, echo, size):
    buffer = bytearray(b"#" * (size + 2 * EDGE))
    target = Buffer.borrow(buffer).slice(EDGE, EDGE + size)
    response = carry(session, get(f"{echo.url}/{size}", target))[0]
    assert (response.status, response.fault, response.overflow, response.received) == (200, None, False, size)
    assert bytes(buffer) == b"#" * EDGE + _body(size) + b"#" * EDGE


@pytest.mark.parametrize("size", SIZES)
def test_a_body_of_unknown_length_is_collected(session, echo, size):
    response = carry(session, get(f"{echo.url}/{size}"))[0]
    assert response.body == _body(size)


@pytest.mark.parametrize("size", [1, TEXT_BYTES, TEXT_BYTES + 1, 3 << 20])
def test_a_body_of_unknown_length_is_collected_up_to_its_bound(session, echo, size):
    url = f"{echo.url}/{size}"
    whole, longer = carry(session, get(url, most_bytes=size), get(url, most_bytes=size - 1))
    assert (whole.body, whole.overflow) == (_body(size), False)
    assert (longer.status, longer.body, longer.overflow, longer.fault) == (200, b"", True, None)


@pytest.mark.parametrize("target", [None, 100, 100_000])
@pytest.mark.parametrize(("status", "most_bytes"), [(200, 1000), (200, 4 << 20), (404, 1 << 40), (503, 1000)])
def test_an_endless_answer_is_cut_off(session, status, most_bytes, target):
    sent = 0

    def script(_received, send):
        nonlocal sent
        send(f"HTTP/1.1 {status} .\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        while True:
            send(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            sent += 0x10000

    with Scripted(script) as server:
        response = carry(session, get(server.url, target and Buffer.allocate(target), most_bytes=most_bytes))[0]
    assert (response.status, response.fault, response.overflow) == (status, None, status == 200 or target == 100_000)
    assert sent < 512 << 20
    assert response.received == (target if target and (status == 200 or target == 100_000) else 0)
    assert len(response.body) == (0 if status == 200 else {None: TEXT_BYTES, 100: SMALL}.get(target, target))


def test_an_answer_that_memory_runs_short_for_is_an_error_and_never_a_part_of_it():
    script = """
        import resource
        from penstock.errors import NoSpace
        from penstock.options import TransportOptions
        from penstock.testing.servers import Scripted, reply
        from penstock.engine.transport.loop import connect
        from penstock.engine.transport.stream import Collected
        from tests.engine.transport.calls import carry, get

        def script(received, send):
            send(b"HTTP/1.1 200 OK\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n")
            for _ in range(int(received.path[1:])):
                send(b"100000\\r\\n" + b"x" * (1 << 20) + b"\\r\\n")
            send(b"0\\r\\n\\r\\n")
            return True

        with Scripted(script) as server:
            session = connect(TransportOptions())
            carry(session, get(server.url + "/1", most_bytes=1 << 30))
            held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (held + (96 << 20), -1))
            for size in (200, 40):  # too much to collect; enough to collect, and too much to hand over
                response = carry(session, get(f"{server.url}/{size}", most_bytes=1 << 30))[0]
                assert type(response.fault) is NoSpace, (size, response.fault, len(response.body))
            assert len(carry(session, get(server.url + "/1", most_bytes=1 << 30))[0].body) == 1 << 20
            stream = Collected()
            stream.close()
            stream.size = (4 << 30) + 5
            try:
                print(len(stream.copy(1 << 40)), "bytes")
            except MemoryError:
                print("told, and the thread lives on")
    """
    ended = python(script)
    assert ended.stdout == "told, and the thread lives on\n", ended.stderr


@pytest.mark.parametrize("size", [1, 100, 4095, 4096, 4097, 16_384, 16_385, 1 << 20])
@pytest.mark.parametrize("more", [1, 5000, 20_000])
def test_body_longer_than_the_buffer_is_cut_and_flagged_as_overflow(session, echo, size, more):
    buffer = bytearray(b"#" * (size + 2 * EDGE))
    target = Buffer.borrow(buffer).slice(EDGE, EDGE + size)
    response = carry(session, get(f"{echo.url}/{size + more}", target))[0]
    assert response.overflow
    assert response.fault is None
    assert bytes(buffer[:EDGE]) == bytes(buffer[-EDGE:]) == b"#" * EDGE
    got = response.received
    assert bytes(buffer[EDGE : EDGE + got]) == _body(size + more)[:got]


@pytest.mark.parametrize("room", [10_000, 20_000])
@pytest.mark.parametrize("size", [0, 100, 4096, 8192])
def test_a_shorter_body_fills_the_beginning(session, echo, size, room):
    buffer = bytearray(b"#" * room)
    response = carry(session, get(f"{echo.url}/{size}", Buffer.borrow(buffer)))[0]
    assert response.received == size
    assert bytes(buffer[:size]) == _body(size)
    if room <= SMALL:  # it never was the place that libcurl writes to
        assert bytes(buffer[size:]) == b"#" * (room - size)


def test_small_bodies_one_after_another_are_each_their_own(echo):
    """One handle, one stream: what the body before has left behind it is no byte of the next one."""
    session = connect(TransportOptions(connections=1))
    sizes = [SMALL, 5, SMALL - 1, 1, 0, SMALL + 1, 7, SMALL]
    targets = [Buffer.allocate(max(size, 1)) for size in sizes]
    parts = [Buffer.allocate(3 * size + 3) for size in sizes]
    slices = [part.slice(size + 1, 2 * size + 2) for part, size in zip(parts, sizes, strict=True)]
    for part in parts:
        part.fill(b"#" * part.size)
    for into in (targets, slices):
        calls = [get(f"{echo.url}/{size}", target) for size, target in zip(sizes, into, strict=True)]
        assert [response.received for response in carry(session, *calls)] == sizes
    assert [target.take()[:size] for target, size in zip(targets, sizes, strict=True)] == [*map(_body, sizes)]
    for part, size in zip(parts, sizes, strict=True):
        assert part.take()[: size + 1] == b"#" * (size + 1)
        assert part.take()[size + 1 :][:size] == _body(size)
        assert part.take()[2 * size + 2 :] == b"#" * (size + 1)
    session.close()


@pytest.mark.parametrize("size", [0, 100, 4096, 16_384, 16_385, 100_000])
def test_an_error_s_text_is_a_body_and_no_data(session, size):
    text = b"<Error>" + b"x" * 9_000
    with Scripted(answering(reply(404, text))) as server:
        response = carry(session, get(server.url, Buffer.allocate(size)))[0]
    assert response.status == 404
    assert response.body == text


@pytest.mark.parametrize("size", [0, 1, 4096, 10 << 20])
@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_sent_body_equals_the_given_buffer_for_each_buffer_type(session, echo, size, method):
    data = _body(size)
    frozen = np.frombuffer(data, np.uint8)  # read-only
    wide = np.zeros(2 * size, np.uint8)
    wide[:size] = frozen
    for body in (data, bytearray(data), memoryview(frozen), memoryview(wide)[:size]):
        response = carry(session, Once(Request(method, echo.url, ("Expect:", "Content-Type:"), body=body)))[0]
        assert response.body == sha256(data).hexdigest().encode()
    received = echo.received[-1]
    assert (received.headers["content-length"], "expect" in received.headers) == (str(size), False)


def test_a_view_of_wide_items_is_sent_whole(session, echo):
    numbers = np.arange(1000.0)
    response = carry(session, Once(Request("PUT", echo.url, body=memoryview(numbers))))[0]
    assert response.body == sha256(numbers.tobytes()).hexdigest().encode()
    assert response.status == 200


def test_a_body_that_does_not_lie_in_one_piece_is_refused(session, echo):
    response = carry(session, Once(Request("PUT", echo.url, body=memoryview(b"abcdef")[::2])))[0]
    assert "C-contiguous" in str(response.fault)
    assert carry(session, get(f"{echo.url}/3"))[0].body == _body(3), "the handle is as good as new"


@pytest.mark.parametrize(("extra", "end"), [("", r"\)"), ("my-job/7 (a; b)", r"\) my-job/7 \(a; b\)")])
def test_every_request_sends_the_user_agent_header(echo, extra, end):
    session = connect(TransportOptions(user_agent_extra=extra))
    for method in ("GET", "PUT", "GET"):
        carry(session, Once(Request(method, f"{echo.url}/1")))
        agent = echo.received[-1].headers["user-agent"]
        assert re.fullmatch(rf"penstock/{re.escape(VERSION)} \(Python/3\.\d+; libcurl/\d+\.\d+\.\d+{end}", agent), agent


def test_methods_do_not_leak_into_the_next_request(session, echo):
    for method in ("PUT", "HEAD", "DELETE", "POST", "GET"):
        carry(session, Once(Request(method, f"{echo.url}/7", body=b"body" if method in ("PUT", "POST") else None)))
        assert carry(session, get(f"{echo.url}/5"))[0].body == _body(5)
        assert (echo.received[-2].method, echo.received[-1].method, echo.received[-1].body) == (method, "GET", b"")


def test_uploads_one_after_another_are_set_up_once(echo, monkeypatch):
    one = connect(TransportOptions(connections=1))  # so that one handle carries them all
    resets = []
    monkeypatch.setattr(easy, "easy_reset", lambda handle, reset=easy.easy_reset: resets.append(reset(handle)))
    for size in (9, 0, 70_000, 3):
        data = _body(size)
        response = carry(one, Once(Request("PUT", echo.url, (f"x-size: {size}",), body=data)))[0]
        assert response.body == sha256(data).hexdigest().encode()
        assert (echo.received[-1].headers["content-length"], echo.received[-1].headers["x-size"]) == (str(size),) * 2
    assert not resets
    assert carry(one, get(f"{echo.url}/5"))[0].body == _body(5)
    assert len(resets) == 1


def test_a_handle_that_memory_ran_short_for_is_set_up_again(echo, monkeypatch):
    """An upload in its place would go out as a GET, or as a POST, and to a host that nobody verified."""
    one = easy.Easy(TransportOptions())
    try:
        one.load(Request("PUT", echo.url, body=b"one"), fresh=False)
        one.unload()
        with monkeypatch.context() as short:
            short.setattr(easy, "setopt", lambda *_: easy._OUT_OF_MEMORY)
            with pytest.raises(MemoryError):
                one.load(Request("GET", echo.url), fresh=False)
            one.unload()
        resets = []
        monkeypatch.setattr(easy, "easy_reset", lambda handle, reset=easy.easy_reset: resets.append(reset(handle)))
        one.load(Request("PUT", echo.url, body=b"two"), fresh=False)
        one.unload()
        assert len(resets) == 1
    finally:
        one.close()


def test_every_request_has_its_own_header_lines_and_no_other_s(echo):
    one = connect(TransportOptions(connections=1))  # so that one handle carries them all
    same = ("x-a: 1", "x-b: 2")
    for lines in (
        (),
        (*same, "x-c: 3", "x-d: 4"),
        (*same, "x-c: 5", "x-d: 6"),
        ("x-a: 7", "x-b: 2", "x-c: 5", "x-d: 6"),
        (*same, "x-c: 3"),
        same,
        ("x-b: 2",),
        (*same, "x-e: 8", "x-d: 6"),
        ("x-a: 9", "x-b: \N{SNOWMAN}", "x-e: 8", "x-d: 6"),
        (*same, "x-e: 8", "x-d: 6"),
        (*same, "x-e: 8", "x-d: broken\nx-f: smuggled"),
        (*same, "x-e: 8", "x-d: 6"),
        (*same, "x-e: 8", "x-d: broken\nx-f: smuggled"),
        (),
        ("x-a: 1",),
        (),
    ):
        before = len(echo.received)
        response = carry(one, Once(Request("GET", f"{echo.url}/3", lines)))[0]
        if any("\n" in line or not line.isascii() for line in lines):
            assert isinstance(response.fault, (Unusable, Bug))
            assert len(echo.received) == before
        else:
            assert response.body == _body(3)
            sent = {name: value for name, value in echo.received[-1].headers.items() if name.startswith("x-")}
            assert sent == dict(line.split(": ") for line in lines)


@pytest.mark.parametrize("status", [200, 404])
def test_a_head_has_a_status_and_headers_and_no_body(session, status):
    with Scripted(answering(reply(status, b"", content_length="12345"))) as server:
        responses = [carry(session, Once(Request("HEAD", server.url)))[0] for _ in range(3)]
    assert [(each.status, each.body, each.fault) for each in responses] == [(status, b"", None)] * 3
    assert [each.headers["content-length"] for each in responses] == ["12345"] * 3


def test_head_opens_no_stream():
    transfer = easy.Easy(TransportOptions())
    opened = []
    for method in ("GET", "HEAD", "GET"):
        transfer.load(Request(method, "http://localhost/"), fresh=False)
        opened.append(transfer.collected is not None)
        assert transfer.unload().body == b""
    transfer.close()
    assert opened == [True, False, True]


def test_response_headers_are_matched_case_insensitively(session):
    answer = b'HTTP/1.1 200 OK\r\nETaG: "e"\r\nCONTENT-length: 2\r\nX-Other: 1\r\n\r\nok'
    with Scripted(lambda _received, send: send(answer) or True) as server:
        wanted, everything = carry(session, get(server.url, wants=("etag", "missing")), get(server.url))
    assert wanted.headers == {"etag": '"e"'}
    assert everything.headers == {"etag": '"e"', "content-length": "2", "x-other": "1"}


_OK = b"HTTP/1.1 200 OK\r\n"
_NAMES = ("etag", "x-amz-checksum-crc32", "x-amz-checksum-sha256", "content-length", "missing")


@pytest.mark.parametrize(
    "answer",
    [
        _OK + b'etag: "a"\r\nx-amz-checksum-SHA256: b\r\ncontent-length: 2\r\n\r\nok',
        _OK + b"etag:\t \xe9 \t\r\nContent-Length:2\r\n\r\nok",
        _OK + b"x-etag: not\r\nx-amz-checksum-crc32c: not\r\ncontent-length: 2\r\n\r\nok",
        _OK + b"x-other: 1\r\n etag: a continued line\r\ncontent-length: 2\r\n\r\nok",
        _OK + b"etag: folded\r\n  here\r\ncontent-length: 2\r\n\r\nok",
        _OK + b"etag:\r\n\tfolded\r\nx-amz-checksum-crc32: b\r\ncontent-length: 2\r\n\r\nok",
        _OK + b"etag:\r\ncontent-length: 2\r\n\r\nok",
        _OK + b"etag: a\ncontent-length: 2\n\nok",
        _OK + b"etag: a\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 100 Continue\r\netag: early\r\n\r\n" + _OK + b"content-length: 2\r\n\r\nok",
        b"HTTP/1.1 103 Early Hints\r\netag: early\r\n\r\n" + _OK + b"etag: a\r\ncontent-length: 2\r\n\r\nok",
        _OK + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\netag: a trailer\r\n\r\n",
        b"HTTP/1.0 200 OK\r\netag: a\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 206\r\netag: a\r\ncontent-length: 2\r\n\r\nok",
        _OK + b"etag: a\r\n" + b"x-long: %s\r\n" % (b"x" * 60_000) + b"content-length: 2\r\n\r\nok",
    ],
)
def test_wanted_headers_are_the_same_as_of_all_headers(session, answer):
    with Scripted(lambda _received, send: send(answer) or True) as server:
        for _ in range(3):
            wanted, everything = carry(session, get(server.url, wants=_NAMES), get(server.url))
            assert (wanted.status, wanted.body) == (everything.status, everything.body)
            assert wanted.status in (200, 206)
            assert wanted.headers == {name: everything.headers[name] for name in _NAMES if name in everything.headers}


def test_first_of_several_headers_with_one_name_counts(session):
    answers = [_OK + b"etag: a\r\n%setag: b\r\ncontent-length: 2\r\n\r\nok" % more for more in (b"", b"x: 1\r\n 2\r\n")]
    for answer in answers:
        with Scripted(answering(answer)) as server:
            assert carry(session, get(server.url, wants=_NAMES))[0].headers["etag"] == "a"


@given(st.lists(st.lists(st.binary(max_size=3000), max_size=4), max_size=9))
def test_header_lines_are_those_since_the_last_look(responses):
    lines = easy.HeaderLines()
    for pieces in responses:
        for piece in pieces:
            assert fwrite(piece, 1, len(piece), lines.stream) == len(piece)
        assert lines.take() == b"".join(pieces)
    lines.close()
    lines.free()


def test_a_c_library_whose_growing_stream_does_not_go_back_is_refused(monkeypatch):
    monkeypatch.setattr(easy, "rewind", lambda _stream: None)
    with pytest.raises(Bug, match="open_memstream returns"):
        easy._check_memstream()


def test_an_error_brings_all_headers(session):
    with Scripted(answering(reply(503, retry_after="3"))) as server:
        response = carry(session, get(server.url, wants=("etag",)))[0]
    assert response.headers["retry-after"] == "3"


def test_a_path_is_sent_as_it_is(session):
    paths = ["/b/./x", "/b/x/../y", "/b//y", "/b/..", "/b/a%20b%2F", "/b/k?list-type=2&prefix=%2E"]
    with Scripted(lambda _received, send: send(reply(200)) or True) as server:
        for path in paths:
            carry(session, get(server.url + path))
    assert [received.path for received in server.received] == paths


@given(st.lists(st.integers(0, 9_000), min_size=2, max_size=6).map(sorted))
def test_slices_of_one_buffer_meet_without_a_seam(cuts):
    session, size = connect(TransportOptions()), 9_000
    data = _body(size)

    def script(received, send):
        start, stop = received.range
        send(reply(206, data[start:stop]))
        return True

    with Scripted(script) as server:
        whole = Buffer.allocate(size)
        bounds = list(pairwise([0, *cuts, size]))
        asked = [(whole.slice(a, b), (f"range: bytes={a}-{b - 1}",)) for a, b in bounds if b > a]
        carry(session, *[get(server.url, target, headers=headers) for target, headers in asked])
        assert whole.take() == data
