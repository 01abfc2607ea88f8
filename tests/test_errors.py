"""The tree is the one that is drawn, its errors cross processes whole, and say what they must."""

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import errors
from penstock.errors import NotFound, PenstockError, Throttled, Transient, add_article, kind_of, worse_of

ROOT = Path(__file__).parents[1]
CLASSES = [each for each in map(errors.__dict__.get, errors.__all__) if isinstance(each, type)]


def test_the_docstring_draws_the_tree():
    drawn = set(re.findall(r"[A-Z]\w+", errors.__doc__.partition("::")[2].partition("Only")[0])) & set(errors.__all__)
    assert drawn == {kind.__name__ for kind in CLASSES}


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_is_one_of_ours_and_crosses_processes_whole(kind):
    error = kind("what happened", url="s3://b/k", attempts=3, elapsed_s=1.5)
    error.retry_after_s, error.code = 7.0, "SlowDown"
    assert isinstance(error, PenstockError)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert vars(again) == vars(error)
    assert str(again) == str(error) == "what happened [s3://b/k] (gave up after 3 attempts in 1.5 s)"
    assert str(kind("only words")) == "only words", "DataLoader makes a worker's error anew from its text"


CELL = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell()
shell.run_cell("import penstock as ps\\ndef look(url):\\n    return ps.open(url).read()")
shell.run_cell('look("memory://no-such-bucket/key")')
"""


@pytest.mark.parametrize("full", [False, True])
def test_notebook_shows_frames_of_the_user_and_penstock_s_on_demand(full, tmp_path):
    # `make platforms` runs this file with few libraries.
    pytest.importorskip("IPython")
    environ = {"IPYTHONDIR": str(tmp_path), "PATH": "", **({"PENSTOCK_TRACEBACK": "full"} if full else {})}
    shown = subprocess.run(
        [sys.executable, "-c", CELL], capture_output=True, text=True, check=True, env=environ, timeout=120
    ).stdout
    shown = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "no-such-bucket" in shown
    assert 'look("memory://no-such-bucket/key")' in shown
    assert "return ps.open(url).read()" in shown
    assert ("penstock/verbs.py" in shown) is full
    assert (len(shown.splitlines()) <= 8) is not full


def test_short_traceback_has_notes_and_causes_and_a_bug_is_shown_in_full():
    try:
        try:
            raise OSError("disk on fire")
        except OSError as cause:
            error = NotFound("no key", url="s3://b/k")
            error.add_note("while sample 3 was read")
            raise error from cause
    except NotFound as error:
        lines = error._render_traceback_()
    assert lines[-4:] == [
        "penstock.errors.NotFound: no key [s3://b/k]",
        "while sample 3 was read",
        "caused by:",
        "OSError: disk on fire",
    ]
    assert not hasattr(errors.Bug("x"), "_render_traceback_")


def test_worst_of_several_failures_is_the_one_that_a_retry_mends_least():
    names = ("ChecksumMismatch", "NoSpace", "Forbidden", "InvalidURL", "NotFound", "Throttled")
    found = [getattr(errors, name)(name) for name in names]
    for at, one in enumerate(found):
        assert worse_of(one, None) is worse_of(None, one) is one
        assert worse_of(one, type(one)("later")) is one
        assert all(worse_of(one, other) is worse_of(other, one) is one for other in found[at + 1 :])
    assert worse_of(None, None) is None


def test_text_from_outside_cannot_steer_a_terminal_or_forge_a_line_of_a_log():
    hostile = "\x1b[2J\r\nroot: all is well\x9b0m \u202edcba \u2028 \ud800 \x00"
    text = str(NotFound(hostile, url="s3://b/\x1b]0;mine\x07"))
    assert text.isprintable()
    assert text == (r"\x1b[2J\r\nroot: all is well\x9b0m \u202edcba \u2028 \ud800 \x00 [s3://b/\x1b]0;mine\x07]")
    assert str(NotFound("schöne Grüße, 🙂", url="s3://b/日本")) == "schöne Grüße, 🙂 [s3://b/日本]"


def test_url_appears_once_in_error_message():
    assert str(NotFound("no s3://b/k here", url="s3://b/k", attempts=1)) == "no s3://b/k here"


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        *(("NotFound", FileNotFoundError), ("Denied", PermissionError), ("Unauthenticated", PermissionError)),
        *(("NoSpace", OSError), ("AlreadyExists", FileExistsError), ("TimedOut", TimeoutError)),
        *(("Unreachable", ConnectionError), ("MissingExtra", ImportError), ("ManifestError", ValueError)),
        *(("InvalidURL", ValueError), ("Unsupported", NotImplementedError)),
    ],
)
def test_python_s_own_names_catch_them_too(name, builtin):
    assert issubclass(getattr(errors, name), builtin)


def test_only_retryable_error_classes_are_transient():
    transient = {kind.__name__ for kind in CLASSES if issubclass(kind, Transient)}
    assert transient == {"Transient", "Throttled", "TimedOut", "Unreachable"}
    assert not issubclass(Throttled, errors.Damaged)


def test_articles_are_those_of_spoken_nouns():
    vowels = ["int", "object", "IterableDataset", "ndarray", "S3Client", "HTTPError", "MDSWriter", "Unusable"]
    others = ["str", "uint8", "UPath", "UserDict", "UUID", "Union", "NoneType", "Sample", "MapDataset", "Reader", "x"]
    assert [add_article(noun) for noun in [*vowels, "OSError"]] == [f"an {noun}" for noun in [*vowels, "OSError"]]
    assert [add_article(noun) for noun in others] == [f"a {noun}" for noun in others]
    assert [kind_of(value) for value in (5, "5", None)] == ["an int", "a str", "None"]


def test_no_message_chooses_the_article_of_a_type_itself():
    found = [path for path in (ROOT / "src").rglob("*.py") if re.search(r"\ban? \{type\(", path.read_text("utf-8"))]
    assert found == [], "kind_of(value) does"


def test_secrets_that_two_threads_conceal_at_once_are_all_hidden(monkeypatch):
    quote, others = errors.quote, iter(["the-secret-of-another-thread"])

    def interrupted(text, **more):  # by another thread, in the middle of it
        for other in others:
            errors.conceal(other)
        return quote(text, **more)

    monkeypatch.setattr(errors, "_secrets", type(errors._secrets)())
    monkeypatch.setattr(errors, "quote", interrupted)
    errors.conceal("the-secret-of/this-thread")
    told = "the-secret-of/this-thread the-secret-of%2Fthis-thread the-secret-of-another-thread"
    assert str(NotFound(told)) == "[hidden] [hidden] [hidden]"
    errors.conceal(*[f"a secret number {number:04}" for number in range(1000)])
    assert len(errors._secrets) == errors._MOST_SECRETS, "the latest ones"


def test_an_address_has_its_other_one_beside_it_the_nearest_of_several(monkeypatch):
    monkeypatch.setattr(errors, "_aliases", {})
    errors.alias("s3://b/", "penstock://whole/")
    errors.alias("s3://b/base/", "penstock://part/")
    assert str(NotFound("gone", url="s3://b/base/x")) == "gone [s3://b/base/x = penstock://part/x]"
    assert str(NotFound("gone", url="s3://b/x")) == "gone [s3://b/x = penstock://whole/x]"
    assert str(NotFound("gone", url="penstock://part/x")) == "gone [penstock://part/x = s3://b/base/x]"
    assert str(NotFound("s3://b/x is gone", url="s3://b/x")) == "s3://b/x is gone [penstock://whole/x]"
    assert str(NotFound("gone", url="s3://c/x")) == "gone [s3://c/x]"
    errors.alias("s3://b/base/", "penstock://same/")
    assert str(NotFound("gone", url="s3://b/base/x")) == "gone [s3://b/base/x]", "either profile may have been used"
    assert str(NotFound("gone", url="penstock://part/x")) == "gone [penstock://part/x = s3://b/base/x]"
    for number in range(1000):
        errors.alias("s3://c/", f"penstock://{number}/")
    assert len(errors._aliases) == errors._MOST_ALIASES


@pytest.mark.parametrize("scheme", ["az", "abfs", "abfss", "adl", "azure"])
def test_azure_container_in_url_is_shown_but_user_information_is_hidden(scheme):
    url = f"{scheme}://box@mine.dfs.core.windows.net/key"
    assert str(NotFound(f"no {url}")) == f"no {url}"
    assert str(NotFound("none", url=url)) == f"none [{url}]"
    told = str(NotFound(f"{scheme}://me:passw0rd@mine.dfs.core.windows.net http://user@h xaz://user@h"))
    assert told == f"{scheme}://[hidden]@mine.dfs.core.windows.net http://[hidden]@h xaz://[hidden]@h"


def test_signatures_and_user_information_are_hidden_and_namespaces_of_oci_shown():
    told = str(NotFound("the query sv=2023&sig=abcdefgh%3D&se=1, and sig%3Dabcdefgh; a design=matters"))
    assert told == "the query sv=2023&sig=[hidden]&se=1, and sig%3D[hidden]; a design=matters"
    told = str(PenstockError("see oci://bucket@namespace/key and s3://key:secret@bucket/key"))
    assert told == "see oci://bucket@namespace/key and s3://[hidden]@bucket/key"


def _sections():
    """Return the lines of troubleshooting.md below each heading that ends in a name."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    parts = re.split(r"(?m)^#{2,3} (.*)$", page)
    return {heading.split(": ")[-1]: body for heading, body in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.mark.parametrize("name", [kind.__name__ for kind in CLASSES if kind is not PenstockError])
def test_every_error_has_a_section_of_the_troubleshooting_page(name):
    assert _sections()[name].strip()


def test_texts_of_the_troubleshooting_page_are_those_of_the_code():
    code = "".join(each.read_text("utf-8") for each in sorted((ROOT / "src" / "penstock").rglob("*.py")))
    code = re.sub(r'["\s]+[fr]?"?', " ", code)  # a message goes over several literals
    sections, found = _sections(), 0
    for name in {kind.__name__ for kind in CLASSES} & {*sections}:
        for row in re.findall(r"(?m)^\| (`.*?) \| ", sections[name]):
            for text in re.findall(r"`([^`]+)`(?! \((?:libcurl|the system)'s\))", row):
                words = text.split()
                runs = [" ".join(words[at : at + 3]).strip(";:,.…") for at in range(len(words) - 2)]
                if "…" in {words[0], words[-1]} and len(words) <= 3:
                    continue  # a code of the store
                assert any(run in code for run in runs), f"no message of {name} has {text!r}"
                found += 1
    assert found > 60
