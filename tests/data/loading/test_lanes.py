"""Lanes under the loaders: each chunk is decoded by one rank, and a run goes on with the lanes of its state."""

from __future__ import annotations

import warnings
from itertools import chain, islice

import pytest
from torch.utils.data import DataLoader

import penstock as ps
from penstock.errors import StateMismatch, Unusable
from penstock.testing.restarts import check_restarts
from tests.data.datasets.chunks import Chunked
from tests.data.datasets.ranks import ranks

COUNT, PER, EVERY = 96, 4, 12
pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]


def chunked(rank=0, world=1, *, lanes=None, **options) -> Chunked:
    return Chunked(COUNT, PER, shuffle=ps.order.Lanes(PER, 2, lanes, **options), place=ps.Place(rank, world))


def load(rank=0, world=1, *, every=EVERY, lanes=None, **options) -> ps.DataLoader:
    return ps.DataLoader(chunked(rank, world, lanes=lanes), every // world, collate_fn=list, **options)


def steps(loaders, count=None) -> list[list[int]]:
    """Return the global batches, each the ranks' parts one after the other."""
    return [list(chain(*row)) for row in islice(zip(*loaders, strict=True), count)]


def epoch(lanes: int, number: int) -> list[list[int]]:
    one = load(lanes=lanes)
    one.set_epoch(number)
    return steps([one])


def test_each_chunk_is_decoded_by_one_rank_but_for_borders():
    loaders, decoded = [load(rank, 4, decode_threads=2) for rank in range(4)], []
    for loader in loaders:
        decode = loader.dataset.decode
        loader.dataset.decode = lambda chunk, decode=decode: decoded.append(chunk) or decode(chunk)
    assert sorted(chain(*steps(loaders))) == list(range(COUNT))
    assert COUNT // PER <= len(decoded) <= COUNT // PER + 3


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "persistent_workers": True}], ids=["threads", "workers"])
def test_resumed_run_keeps_the_lanes_of_its_state_on_fewer_ranks(options):
    """Workers that are alive, and have read in lanes of their own ranks, take those of the state, too."""
    four = [load(rank, 4) for rank in range(4)]
    before = steps(four, 3)
    state = four[0].state_dict()
    assert state["lanes"] == 4
    assert {str(loader.state_dict()) for loader in four} == {str(state)}
    for world in (1, 2):
        loaders = [load(rank, world, **options) for rank in range(world)]
        own = steps(loaders, 2)
        assert own != epoch(4, 0)[:2]
        for loader in loaders:
            loader.load_state_dict(state)
        assert before + steps(loaders) == epoch(4, 0)
        assert steps(loaders) == epoch(4, 1)
        assert loaders[0].state_dict()["lanes"] == 4
        for loader in loaders:
            loader.set_epoch(7)
        assert steps(loaders) == epoch(4, 7)
        del loaders, loader


def test_ranks_that_do_not_divide_the_lanes_are_refused_or_read_again_with_a_warning():
    four = [load(rank, 4) for rank in range(4)]
    before = steps(four, 3)
    state = four[0].state_dict()
    three = [load(rank, 3) for rank in range(3)]
    with pytest.raises(StateMismatch, match=r"cannot share the 4 lanes.*allow_rereads=True"):
        three[0].load_state_dict(state)
    for loader in three:
        with pytest.warns(UserWarning, match="several read the same blocks"):
            loader.load_state_dict(state, allow_rereads=True)
    assert before + steps(three) == epoch(4, 0)
    assert three[0].state_dict()["lanes"] == 3
    assert steps(three) == epoch(3, 1)
    ended = state | {"position": 0, "epoch": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        three[0].load_state_dict(ended)
    assert three[0].state_dict()["lanes"] == 3


def test_a_lost_rank_is_another_global_batch_and_other_lanes():
    four = [load(rank, 4) for rank in range(4)]
    before = steps(four, 3)
    three = [load(rank, 3, every=9) for rank in range(3)]
    for loader in three:
        with pytest.raises(StateMismatch, match="allow_rereads"):
            loader.load_state_dict(four[0].state_dict(), allow_new_global_batch=True)
        with pytest.warns(UserWarning, match="several read the same blocks"):
            loader.load_state_dict(four[0].state_dict(), allow_new_global_batch=True, allow_rereads=True)
    assert sorted(chain(*before, *steps(three))) == list(range(COUNT))
    assert sorted(chain(*steps(three))) == list(range(COUNT))


def test_lanes_that_the_ranks_cannot_share_are_refused_before_the_first_batch():
    for make in (load, lambda *place, **options: chunked(*place, **options).batched(4, list)):
        with pytest.raises(Unusable, match="3 ranks with batches of 4 cannot share lanes=4"):
            next(iter(make(0, 3, lanes=4)))
    sampler = ps.BatchSampler(range(COUNT), 4, shuffle=ps.order.Lanes(PER, 2, 4), place=ps.Place(0, 3))
    with pytest.raises(Unusable, match="cannot share lanes=4"):
        next(iter(sampler))


def test_states_at_any_batch_and_epoch_have_the_lanes_of_the_run():
    of = chunked(1, 2).batched(6, list)
    assert of.state_at(2, epoch=3)["lanes"] == 2
    of.load_state_dict(of.state_at(2, epoch=3) | {"lanes": 4})
    assert (of.state_at(1)["lanes"], of.state_at(0, epoch=9)["lanes"]) == (4, 4)
    assert sorted(chain(*of))
    assert of.state_dict()["lanes"] == 4


def test_laned_order_restarts_under_each_loader_and_rejects_foreign_states():
    def make(**options):
        return lambda: load(**options)

    def formed():
        from torchdata.stateful_dataloader import StatefulDataLoader

        return StatefulDataLoader(chunked(lanes=3).batched(3 * EVERY, list), batch_size=None, num_workers=1)

    check_restarts(make(lanes=3), foreign=[lambda: ps.DataLoader(Chunked(COUNT, PER), EVERY, collate_fn=list)])
    check_restarts(formed, epochs=1, limit_bytes=None)


def test_torchs_loader_over_batches_takes_the_lanes_of_a_state():
    halves = [chunked(rank, 2).batched(6, list) for rank in range(2)]
    before = [list(chain(*row)) for row in islice(zip(*map(iter, halves), strict=True), 3)]
    whole = chunked().batched(EVERY, list)
    whole.load_state_dict(halves[1].state_at(3))
    assert before + list(DataLoader(whole, batch_size=None, num_workers=2)) == epoch(2, 0)


def _train(state):
    """Run on each rank of a group: go on from a state, and return the batches, chunks decoded and the state after 2."""
    dataset = Chunked(COUNT, PER, shuffle=ps.order.Lanes(PER, 2))
    decoded, decode = [], dataset.decode
    dataset.decode = lambda chunk: decoded.append(chunk) or decode(chunk)
    loader = ps.DataLoader(dataset, EVERY // 2, collate_fn=list)
    if state:
        loader.load_state_dict(state)
    batches = iter(loader)
    got = [next(batches), next(batches)]
    after = loader.state_dict()
    return got + list(batches), decoded, after


def test_distributed_ranks_share_chunks_and_resume_from_a_saved_state(tmp_path):
    (first, one, state), (second, other, again) = ranks(2, f"file://{tmp_path}/store", _train, None)
    assert [a + b for a, b in zip(first, second, strict=True)] == epoch(2, 0)
    assert len(one) + len(other) <= COUNT // PER + 1
    assert state == again
    (first, _, _), (second, _, _) = ranks(2, f"file://{tmp_path}/again", _train, state)
    assert [a + b for a, b in zip(first, second, strict=True)] == epoch(2, 0)[2:]
