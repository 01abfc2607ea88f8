"""Arguments of ``ZarrDataset`` that are no shape of samples: refused before the first request, with what to write."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.datasets.zarr.arrays import StoredArray

__all__ = ["check_values", "check_words", "refuse_unknown"]

_OF_LOADER = {
    *("batch_size", "num_workers", "collate_fn", "tail", "drop_last", "pin_memory", "device", "decode_threads"),
    *("prefetch", "prefetch_factor", "persistent_workers", "on_error"),
}
_INSTEAD = {
    "chunks": "the samples of whole chunks are dims= and patch=; penstock zarr copy --chunks writes others",
    "shuffle_buffer": "the samples of window_bytes= of chunks are mixed",
    "transforms": "pass one function as transform=",
}
_IN_TENSORS = "biufc"  # kinds of dtypes that torch has
_KINDS = {"M": "times", "m": "durations", "U": "texts", "S": "texts"}


def refuse_unknown(unknown: Iterable[str], known: Iterable[str]) -> None:
    """Refuse arguments that the dataset has not, with where they belong.

    Raises:
        Unusable: There is one.

    """
    for name in unknown:
        if name in _OF_LOADER:
            raise Unusable(f"{name}= is the loader's: ps.DataLoader(dataset, batch_size, …)")
        near = get_close_matches(name, [*known], 1)
        hint = _INSTEAD.get(name) or (
            f"did you mean {near[0]}=?" if near else "help(ps.ZarrDataset) lists those it has"
        )
        raise Unusable(f"ZarrDataset has no argument {name}=: {hint}")


def check_words(*, align: object, missing: object, output: object, decode_cf: object, transform: object) -> None:
    """Refuse words that the dataset does not know.

    Raises:
        Unusable: One of them; the text names it.

    """
    if align not in ("index", "coordinates"):
        raise Unusable(f'align must be "index" or "coordinates", not {align!r}')
    if missing not in ("fill", "error"):
        raise Unusable(f'missing must be "fill" or "error", not {missing!r}')
    if output not in ("torch", "numpy"):
        raise Unusable(f'output must be "torch" or "numpy", not {output!r}')
    if decode_cf not in (None, True, False):
        raise Unusable(f"decode_cf must be True, False or None, not {decode_cf!r}")
    if transform is not None and not callable(transform):
        raise Unusable(f"transform is a function of a sample, not {transform!r}")


def check_values(given: Mapping[str, Mapping[str, StoredArray]], *, numpy: bool) -> None:
    """Refuse arrays that have no place in a tensor: times and texts.

    Args:
        given: Arrays by name, by the argument that they were passed as.
        numpy: Samples are arrays of NumPy, which may be anything.

    Raises:
        Unusable: There is one.

    """
    for argument, arrays in ({} if numpy else given).items():
        fit = [name for name, array in arrays.items() if array.decoded.dtype.kind in _IN_TENSORS]
        for name, array in arrays.items():
            if name not in fit:
                dtype = array.decoded.dtype
                rest = f"name the arrays that a sample has ({', '.join(fit)}), or " if fit else ""
                raise Unusable(
                    f"{argument}{f'[{name!r}]' if name else ''} has values of {dtype} ({_KINDS.get(dtype.kind)}), "
                    f'which no tensor holds: {rest}pass output="numpy" and a transform= that makes numbers of them',
                    url=array.url,
                )
