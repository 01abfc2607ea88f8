"""Attention over packed rows is attention over each document alone, by masks as by borders."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import penstock as ps
from penstock.data.loading.decoding import mover, pin_batch
from penstock.errors import Unusable
from tests.data.tokens.lengths import write_numbered

LENGTH, WIDTH = 96, 16


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    write_numbered(folder, [[40, 7, 96, 1, 1, 230, 60, 33, 20, 5, 3, 90, 44]])
    dataset = ps.TokenDataset.from_shards(f"{folder}/", length=LENGTH, pack="best-fit")
    [batch] = ps.DataLoader(dataset, len(dataset))
    assert any(sum(sizes) < LENGTH for sizes in batch.seq_lens)
    assert max(map(len, batch.seq_lens)) > 3
    return batch


@pytest.fixture(scope="module")
def hidden(batch):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1000, WIDTH, generator=generator)[batch.tokens]


def by_document(batch, hidden):
    """Return the attention over each sequence by itself."""
    flat, borders = hidden.reshape(1, -1, WIDTH), batch.cu_seqlens.tolist()
    parts = [flat[:, begin:end] for begin, end in pairwise(borders)]
    assert max(each.shape[1] for each in parts) == batch.max_seqlen
    found = [scaled_dot_product_attention(each, each, each, is_causal=True) for each in parts]
    return torch.cat(found, 1).reshape(hidden.shape)


def test_mask_of_document_ids_is_attention_over_each_document(batch, hidden):
    ids = batch.document_ids
    mask = (ids[:, :, None] == ids[:, None, :]) & torch.tril(torch.ones(LENGTH, LENGTH, dtype=torch.bool))
    found = scaled_dot_product_attention(hidden, hidden, hidden, attn_mask=mask)
    assert (found - by_document(batch, hidden)).abs().max() < 1e-5


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_by_document_ids_is_attention_over_each_document(batch, hidden):
    ids = batch.document_ids

    def sees(row, _, query, key):
        return (ids[row, query] == ids[row, key]) & (query >= key)

    mask = create_block_mask(sees, len(ids), None, LENGTH, LENGTH, device="cpu")
    heads = hidden[:, None]
    found = flex_attention(heads, heads, heads, block_mask=mask)[:, 0]
    assert (found - by_document(batch, hidden)).abs().max() < 1e-5


def test_loss_by_labels_is_that_of_the_documents(batch):
    generator = torch.Generator().manual_seed(1)
    table = torch.randn(1000, 1000, generator=generator)
    total, count = 0.0, 0
    for tokens, labels, sizes in zip(batch.tokens, batch.labels, batch.seq_lens, strict=True):
        at = 0
        for size in sizes:
            document = tokens[at : at + size]
            # The last piece of a cut row predicts the token behind the cut, too.
            behind = labels[at + size - 1 : at + size]
            targets = torch.cat([document[1:], behind[behind >= 0]])
            total += cross_entropy(table[document[: len(targets)]], targets, reduction="sum").item()
            count += len(targets)
            at += size
    found = cross_entropy(table[batch.tokens].flatten(0, 1), batch.labels.flatten(), reduction="sum")
    assert found.item() == pytest.approx(total, rel=1e-5)
    assert int((batch.labels >= 0).sum()) == count


def test_computed_values_are_where_the_tokens_are(batch):
    moved = batch.to("meta")
    assert isinstance(moved, ps.PackedBatch)
    assert moved.seq_lens == batch.seq_lens
    for name in ("tokens", "labels", "cu_seqlens", "position_ids", "document_ids"):
        assert getattr(moved, name).device.type == "meta"
        assert getattr(moved, name).shape == getattr(batch, name).shape
        assert getattr(moved, name).dtype == getattr(batch, name).dtype
    same = mover(torch.device("meta"))(batch)
    assert (type(same), same.tokens.device.type) == (ps.PackedBatch, "meta")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_are_pinned_and_moved_to_a_gpu(batch):
    pinned = batch.pin_memory()
    assert pinned.tokens.is_pinned()
    assert pin_batch(batch).labels.is_pinned()
    moved = pinned.to("cuda", non_blocking=True)
    for name in ("tokens", "labels", "cu_seqlens", "position_ids", "document_ids"):
        assert getattr(moved, name).cpu().equal(getattr(batch, name))


def test_rows_of_several_lengths_do_not_join():
    rows = [ps.PackedBatch(torch.zeros(1, n), torch.zeros(1, n), [[n]]) for n in (3, 4)]
    with pytest.raises(Unusable, match="must have the same length"):
        torch.utils.data.default_collate(rows)


def test_borders_beyond_int32_are_refused():
    rows = np.broadcast_to(np.zeros(1, np.int8), (1 << 11, 1 << 20))
    with pytest.raises(Unusable, match=r"below 2\^31"):
        _ = ps.PackedBatch(rows, rows, [[1 << 20]] * (1 << 11)).cu_seqlens
    rows = rows[:-1]
    assert ps.PackedBatch(rows, rows, [[1 << 20]] * len(rows)).cu_seqlens[-1] == (1 << 31) - (1 << 20)


def test_rows_without_documents_have_only_padding():
    batch = ps.PackedBatch(torch.zeros(1, 4), torch.full((1, 4), -100), [[]])
    assert batch.cu_seqlens.tolist() == [0, 4]
    assert batch.document_ids.tolist() == [[-1] * 4]


def test_batch_of_arrays_refuses_to_be_moved_or_pinned():
    batch = ps.PackedBatch(np.zeros((1, 4), np.uint16), np.full((1, 4), -100), [[4]])
    for move in (lambda: batch.to("cpu"), batch.pin_memory):
        with pytest.raises(Unusable, match="cannot move or pin arrays: leave output='numpy' out"):
            move()
