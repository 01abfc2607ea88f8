"""Modes are read as the built-in ``open`` reads them, and text that fails to be written is not there."""

import gc
import io
import itertools

import pytest

import penstock as ps
from penstock.errors import AlreadyExists, ConfigError, NotFound
from penstock.verbs import TextReader, TextWriter, read_mode

BINARY, TEXT = ("rb", "br", "wb", "bw", "xb", "bx"), ("r", "rt", "tr", "w", "wt", "tw", "x", "xt", "tx")
OLD = b"what stood there before"


@pytest.fixture
def url(request):
    """Return the URL of an object that is there."""
    url = f"memory://modes/{request.node.name}"
    with ps.open(url, "wb") as file:
        file.write(OLD)
    return url


def _bytes(url):
    with ps.open(url) as file:
        return file.read()


def test_modes_are_the_built_in_s_without_appending_and_changing(tmp_path):
    """Every text of up to three letters is a mode here if it is one of the built-in's, less two kinds."""
    letters = "rwxabt+U"
    for mode in ("".join(each) for size in range(4) for each in itertools.product(letters, repeat=size)):
        (tmp_path / "there").write_bytes(b"")
        target = tmp_path / ("new" if "x" in mode else "there")
        try:
            with open(target, mode):
                known = "a" not in mode and "+" not in mode
        except ValueError:
            known = False
        (tmp_path / "new").unlink(missing_ok=True)
        if known:
            assert read_mode(mode).text == mode
        else:
            with pytest.raises(ConfigError, match="mode"):
                read_mode(mode)
    assert {mode for mode in BINARY + TEXT if read_mode(mode).binary} == set(BINARY)


@pytest.mark.parametrize(
    ("mode", "arguments", "advice"),
    [
        ("a", {}, "not appended to"),
        ("ab", {}, "not appended to.*'wb'.*'xb'"),
        *((mode, {}, "not changed in place") for mode in ("r+", "r+b", "w+b")),
        ("rU", {}, "any line ends"),
        *((mode, {}, "one of 'r', 'w' or 'x'") for mode in ("", "rw", "rbt", "rbx", None)),
        ("read", {}, "not appended to"),
        ("rb", {"encoding": "utf-8"}, "bytes have no encoding=.*'r'"),
        ("wb", {"errors": "strict"}, "bytes have no errors="),
        ("xb", {"newline": ""}, "bytes have no newline="),
        ("r", {"encoding": "utf-9"}, "unknown encoding"),
        ("r", {"encoding": "hex"}, "not a text encoding"),
        ("r", {"encoding": 8}, "encoding"),
        ("w", {"errors": "ignored"}, "unknown error handler"),
        ("w", {"newline": "\t"}, "newline"),
        ("r", {"metadata": {}}, "ps.stat"),
    ],
)
def test_invalid_mode_or_argument_is_refused_before_any_request(mode, arguments, advice, url):
    with pytest.raises(ConfigError, match=advice) as caught:
        ps.open("s3://no-such-bucket/key", mode, store=ps.S3Options(endpoint="http://127.0.0.1:9"), **arguments)
    assert caught.value.url == "s3://no-such-bucket/key"
    assert _bytes(url) == OLD


@pytest.mark.parametrize("newline", [None, "", "\n", "\r", "\r\n"])
@pytest.mark.parametrize(("encoding", "errors"), [(None, None), ("utf-16", "strict"), ("ascii", "backslashreplace")])
def test_text_mode_matches_builtin_open_for_encodings_and_newlines(url, tmp_path, newline, encoding, errors):
    text, path = "zwölf\r\n€\nein\rende", tmp_path / "model"
    how = {"encoding": encoding, "errors": errors, "newline": newline}
    with ps.open(url, "w", **how) as file, open(path, "w", **(how | {"encoding": encoding or "utf-8"})) as model:
        assert file.write(text) == model.write(text)
        file.writelines([text, "\n"])
        model.writelines([text, "\n"])
    assert _bytes(url) == path.read_bytes()
    with ps.open(url, "r", **how) as file, open(path, **(how | {"encoding": encoding or "utf-8"})) as model:
        assert [file.readline(), file.read(3), *file] == [model.readline(), model.read(3), *model]
        assert file.newlines == model.newlines


def test_a_text_file_has_the_manners_of_python_s_own(url):
    with ps.open(url, "rt", encoding="latin-1") as file:
        assert isinstance(file, TextReader)
        assert isinstance(file, io.TextIOBase)
        assert (file.name, file.mode, file.encoding, file.errors) == (url, "rt", "latin-1", "strict")
        assert file.closed is False
        assert (file.readable(), file.writable(), file.seekable()) == (True, False, True)
        assert file.read(4) == "what"
        at = file.tell()
        assert (file.read(), file.seek(at), file.read(6)) == (OLD[4:].decode(), 4, " stood")
        for call in (lambda: file.write("x"), file.fileno, file.truncate):
            with pytest.raises(io.UnsupportedOperation):
                call()
    with pytest.raises(ValueError, match="closed"):
        file.read()
    with ps.open(url, "w") as file:
        assert isinstance(file, TextWriter)
        assert (file.name, file.mode, file.readable(), file.writable()) == (url, "w", False, True)
        for call in (file.read, file.fileno, lambda: file.seek(0), file.truncate):
            with pytest.raises(io.UnsupportedOperation):
                call()
        assert (file.seekable(), file.write("ü"), file.tell()) == (False, 1, 2)
    assert _bytes(url) == "ü".encode()


def test_undecodable_text_raises_unicode_decode_error(url):
    with ps.open(url, "wb") as file:
        file.write(b"\xff\xfe")
    with pytest.raises(UnicodeDecodeError), ps.open(url, "r") as file:
        file.read()


class TestWriting:
    def test_a_block_that_fails_publishes_nothing(self, url):
        for error in (RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit):
            with pytest.raises(error), ps.open(url, "w") as file:
                file.write("half")
                raise error
            assert file.closed
        assert _bytes(url) == OLD

    def test_a_dropped_file_publishes_nothing(self, url):
        ps.open(url, "w").write("half")
        file = ps.open(url, "w")
        file.write("half")
        file.cycle = file  # only the collector finds it
        del file
        gc.collect()
        assert _bytes(url) == OLD

    def test_text_without_a_code_publishes_nothing(self, url):
        with pytest.raises(UnicodeEncodeError), ps.open(url, "w", encoding="ascii") as file:
            file.write("whole ")
            file.write("ü")
        assert _bytes(url) == OLD

    def test_close_on_the_way_out_publishes_nothing(self, url):
        file = ps.open(url, "w")
        with pytest.raises(RuntimeError) as caught:
            try:
                file.write("half")
                raise RuntimeError
            finally:
                file.close()
        assert "nothing was published" in caught.value.__notes__[0]
        assert _bytes(url) == OLD

    def test_an_abort_publishes_nothing_and_closes(self, url):
        file = ps.open(url, "w")
        file.write("half")
        for _ in range(2):
            file.abort()
            file.close()
        with pytest.raises(ValueError, match="closed"):
            file.write("more")
        with pytest.raises(ValueError, match="closed"), file:
            pass
        assert _bytes(url) == OLD

    def test_a_flush_that_fails_publishes_nothing(self, url, monkeypatch):
        file = ps.open(url, "w")
        file.write("held back until the end")
        monkeypatch.setattr(type(file.buffer), "write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            file.close()
        monkeypatch.undo()
        assert (file.closed, _bytes(url)) == (True, OLD)

    def test_closing_twice_publishes_once(self, url):
        file = ps.open(url, "w")
        file.write("whole")
        file.close()
        written = ps.stat(url)
        file.close()
        assert (ps.stat(url), _bytes(url)) == (written, b"whole")

    def test_creating_takes_a_new_name(self, url):
        with pytest.raises(AlreadyExists), ps.open(url, "x") as file:
            file.write("new")
        with ps.open(f"{url}-new", "xt") as file:
            file.write("new")
        assert (_bytes(url), _bytes(f"{url}-new"), file.mode) == (OLD, b"new", "xt")

    def test_a_block_left_well_inside_an_older_handler_publishes(self, url):
        try:
            raise RuntimeError
        except RuntimeError:
            with ps.open(url, "w") as file:
                file.write("whole")
        assert _bytes(url) == b"whole"


def test_metadata_goes_with_text(url):
    with ps.open(url, "w", metadata={"run": "7"}) as file:
        file.write("x")
    assert ps.stat(url).metadata["run"] == "7"


def test_opening_a_missing_object_raises_not_found(url):
    with pytest.raises(NotFound):
        ps.open(f"{url}-missing", "r")
