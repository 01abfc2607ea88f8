"""Labels of packed rows leave out the tokens whose loss mask is 0."""

from __future__ import annotations

import json

import numpy as np
import pytest

import penstock as ps
from penstock.data.tokens import packing
from penstock.errors import Changed, Damaged, NotFound, StateMismatch, Unusable

LENGTH, IGNORED = 32, -100
ORDERS = {"lanes": ps.order.Lanes(), "catalog": False, "full": True}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write files of datatrove with numbered tokens, and a mask of every third document's first half."""
    monkeypatch.setattr(packing, "_LEAST_BYTES", 8 * LENGTH * 4)
    draw, first = np.random.default_rng(0), 1
    for name in "ab":
        lengths = np.append(draw.integers(1, 40, 300), [LENGTH, 2 * LENGTH + 1, 1])
        masks = [np.arange(size) >= (at % 3 == 0) * size // 2 for at, size in enumerate(lengths)]
        tokens = np.arange(first, first + lengths.sum(), dtype="u4")
        first += int(lengths.sum())
        tokens.tofile(tmp_path / f"{name}.ds")
        np.cumsum(lengths).astype("u8").tofile(tmp_path / f"{name}.ds.index")
        np.concatenate(masks).tofile(tmp_path / f"{name}.ds.loss")
    return tmp_path


def opened(folder, **options):
    return ps.TokenDataset.from_shards(f"{folder}/", length=LENGTH, **{"pack": "best-fit", "loss": True, **options})


def wanted(folder):
    """Return the tokens that are labels: those with a mask of 1 that do not begin a document."""
    found = set()
    for name in "ab":
        kinds = {"": "u4", ".index": "u8", ".loss": "u1"}
        tokens, ends, mask = (np.fromfile(folder / f"{name}.ds{end}", kind) for end, kind in kinds.items())
        begins = np.append(0, ends[:-1]).astype(int)
        mask[begins] = 0
        found |= {*tokens[mask == 1].tolist()}
    return found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
@pytest.mark.parametrize("pack", ["best-fit", "cut"])
def test_each_token_whose_mask_is_one_is_a_label_once(folder, pack, order, workers):
    plain = {int(row.tokens[0, 0]): row.labels for row in opened(folder, pack=pack, loss=False)}
    labels = list[int]()
    for batch in ps.DataLoader(opened(folder, pack=pack), 4, shuffle=order, num_workers=workers):
        assert (batch.tokens.shape, batch.labels.shape) == ((len(batch.tokens), LENGTH),) * 2
        kept = batch.labels != IGNORED
        assert (batch.labels[kept] == batch.tokens[kept] + 1).all()
        for row, its in zip(batch.tokens, batch.labels, strict=True):
            assert ((its == IGNORED) | (its == plain[int(row[0])][0])).all()
        labels += batch.labels[kept].tolist()
    assert sorted(labels) == sorted(wanted(folder))


def test_rows_with_masks_are_read_by_a_saved_plan_and_by_index(folder, tmp_path_factory):
    plan = tmp_path_factory.mktemp("plan") / "rows"
    ps.index(f"{folder}/", plan, format="packing", length=LENGTH)
    planned, now = opened(folder, plan=plan), opened(folder)
    assert planned.windows.digest == now.windows.digest
    for a, b in zip(planned[5:15], now[5:15], strict=True):
        assert (a.labels == b.labels).all()
    assert (planned[7].labels == now[7].labels).all()


def test_chats_and_texts_without_masks_stack_in_a_mixture(folder):
    sources = {"chat": opened(folder), "text": opened(folder, loss=False)}
    loader = ps.DataLoader(ps.Mix(sources, weights={"chat": 1, "text": 1}), 8, shuffle=True)
    batch = next(iter(loader))
    # Of numbered tokens, the mask alone ignores one before a token of the same document.
    masked = [(row == IGNORED).sum() for row in batch.labels]
    assert len({*map(int, masked)}) > 1
    assert batch.labels.shape == (8, LENGTH)


def test_state_of_rows_without_masks_is_refused(folder):
    loader = ps.DataLoader(opened(folder, loss=False), 4, shuffle=True)
    next(iter(loader))
    with pytest.raises(StateMismatch):
        ps.DataLoader(opened(folder), 4, shuffle=True).load_state_dict(loader.state_dict())


def test_masks_that_map_has_written_leave_prompts_out(tmp_path):
    chats = [{"prompt": [1, 2, 3], "answer": [10 + at, 50 + at]} for at in range(20)]
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))

    def encode(chat):
        return {"tokens": chat["prompt"] + chat["answer"], "loss": [0, 0, 0, 1, 1]}

    ps.map(f"{tmp_path}/chats.jsonl", encode, f"{tmp_path}/tokens/", format="tokens", dtype="uint16", progress=False)
    [*batches] = ps.DataLoader(opened(tmp_path / "tokens"), 4)
    labels = np.concatenate([batch.labels.numpy().ravel() for batch in batches])
    assert sorted(labels[labels != IGNORED].tolist()) == [*range(10, 30), *range(50, 70)]


def test_mask_that_is_missing_short_or_replaced_is_an_error(folder):
    dataset = opened(folder)
    mask = folder / "b.ds.loss"
    data = mask.read_bytes()
    mask.write_bytes(data[:-1])
    with pytest.raises(Damaged, match="a loss mask must have one byte a token"):
        opened(folder)
    with pytest.raises(Changed, match=r"b\.ds\.loss"):
        [*ps.DataLoader(dataset, 4, shuffle=ps.order.Lanes())]
    mask.unlink()
    with pytest.raises(NotFound, match=r"loss=True needs this file, with one byte a token.*b\.ds\.loss"):
        opened(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pack": None}, "loss=True is for packed rows"),
        ({"loss": "a.loss"}, "loss must be"),
    ],
)
def test_wrong_uses_of_loss_are_refused(folder, options, message):
    with pytest.raises(Unusable, match=message):
        opened(folder, **options)
