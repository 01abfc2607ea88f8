"""Every Python block of the manual runs as printed: page by page, against a server, with a user's environment."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.edges.launch import run
from tests.images import emptied

ROOT = Path(__file__).parents[1]
PAGES = [page for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))) if page.exists()]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language> *\w*).*$")
EXEMPT = re.compile(r"<!-- not run:(?P<reason>.*)-->")


class Block(NamedTuple):
    """A fenced block: the number of its fence's line, its language as written, its lines, and why it is not run."""

    number: int
    language: str
    lines: list[str]
    exempt: str | None  # None: it runs


def blocks(text: str) -> list[Block]:
    """Return a page's fenced blocks in order; a comment `<!-- not run: reason -->` right above one exempts it."""
    found, before, opened = [], "", None
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is not None:
            if fence and not fence["language"]:
                opened = None
            else:
                opened.lines.append(line)
        elif fence:
            exempt = EXEMPT.search(before)
            opened = Block(number, fence["indent"] + fence["language"], [], exempt and exempt["reason"].strip())
            found.append(opened)
        elif line.strip():
            before = line
        if fence and opened is None:
            before = ""
    return found


def script(page: list[Block]) -> str:
    """Return what runs of a page: its lines where they stand on the page, so that a traceback names them."""
    lines: list[str] = []
    for block in page:
        if block.language == "python" and block.exempt is None:
            lines += [""] * (block.number - len(lines)) + block.lines
    return "\n".join(lines) + "\n"


@pytest.fixture
def environment(filled):
    """Return what a user would export; nothing but the images is left of the page before."""
    return emptied(filled)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_runs_as_printed(page, environment, tmp_path):
    every = blocks(page.read_text("utf-8"))
    odd = [block.number for block in every if block.language.strip().startswith("py") and block.language != "python"]
    assert not odd, f"write ```python at the start of the line, so that it is run: lines {odd}"
    assert all(block.exempt != "" for block in every), "<!-- not run: --> without a reason"
    code = [block for block in every if block.language == "python"]
    if not code:
        return
    assert any(block.exempt is None for block in code), "no block of this page runs"
    program = tmp_path / f"page_{page.stem}.py"  # lightning.py would be taken for the library
    program.write_text(script(code), "utf-8")
    ended = run([program], [os.environ | environment], folder=tmp_path)
    assert ended.returncode == 0, f"{page.relative_to(ROOT)} fails where its reader would:\n{ended.stdout}"


def test_readme_training_resumes_from_its_saved_checkpoint(environment, tmp_path):
    readme = script(blocks((ROOT / "README.md").read_text("utf-8")))
    assert readme.count("EPOCHS = 3\n") == 1
    show = "print('steps', run.steps(), 'of', sorted(run.restore()), bool(run.restore()['optimizer']['state']))\n"
    printed = []
    for epochs in (3, 3, 5):
        program = tmp_path / "readme.py"
        program.write_text(readme.replace("EPOCHS = 3\n", f"EPOCHS = {epochs}\n") + show, "utf-8")
        ended = run([program], [os.environ | environment], folder=tmp_path)
        assert ended.returncode == 0, ended.stdout
        printed += re.findall(r"steps (\[.*?\]) of \['model', 'optimizer'\] True", ended.stdout)
    # of two batches an epoch, the first of which the loop before has trained on
    assert printed == ["[2, 4]", "[2, 4]", "[6, 8]"]


# The first words of what pages tell a user to type; what is not looked at has its reason.
NOT_RUN = {
    "export": "settings of the reader's own store",
    "gcloud": "Google's program",
    "srun": "Slurm: examples/slurm/ runs in tests/compat/test_zarrdataset.py",
    "head=$(scontrol": "the same",
    "--nnodes": "the same",
    "--rdzv-id": "the same",
    "--": "the same",
    "python train.py": "the reader's own program",
}


def _typed():
    """Return each line of the manual's shell blocks, without comments, with its page."""
    for page in PAGES:
        for block in blocks(page.read_text("utf-8")):
            if block.language == "bash":
                for line in filter(None, (each.partition("#")[0].strip() for each in block.lines)):
                    yield pytest.param(line, id=f"{page.stem}:{line}")


@cache
def _told(*command):
    """Return what a command prints; pages show a verb more than once."""
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=100).stdout


@pytest.mark.parametrize("line", [*_typed()])
def test_a_command_of_the_manual_is_there_with_its_options(line):
    line = re.sub(r"^(?:[A-Z_]+=\S+ )+(?=\S)", "", line)
    if any(line == each or line.startswith((f"{each} ", f"{each}=")) for each in NOT_RUN):
        return
    words = shlex.split(line)
    match words:
        case ["pip", "install", *what]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
            assert {each for name in what for each in re.findall(r"[\w-]+", name.partition("[")[2])} <= {*extras}
            return
        case ["make", target, *_]:
            assert re.search(rf"(?m)^{target}:", (ROOT / "Makefile").read_text("utf-8"))
            return
        case ["python", "-m", module, *_]:
            command = [sys.executable, "-m", module, "--help"]
        case ["penstock", verb, *_]:
            command = [str(Path(sys.executable).with_name("penstock")), verb, "--help"]
        case _:
            pytest.fail(f"{line}: run it here, or say in NOT_RUN why not")
    told = _told(*command)
    assert [word for word in words if word.startswith("--") and word not in told] == []


PAGE = """# A page

```python
x = 1
```

<!-- not run: needs a GPU -->
```python
x = 2
```

```bash
exit 1
```

```python
assert x == 1
```
"""


def test_blocks_of_a_page_share_their_names_and_keep_their_lines():
    code = script(blocks(PAGE))
    assert code.splitlines()[3] == PAGE.splitlines()[3] == "x = 1"
    assert code.splitlines()[16] == PAGE.splitlines()[16] == "assert x == 1"
    assert "x = 2" not in code
    exec(compile(code, "page", "exec"), {})  # noqa: S102  that is what this file is about


def test_an_exemption_belongs_to_one_block_and_has_a_reason():
    assert [block.exempt for block in blocks(PAGE)] == [None, "needs a GPU", None, None]
    assert blocks("<!-- not run: -->\n```python\n```")[0].exempt == ""
