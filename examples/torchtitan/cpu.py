"""Lets torchtitan train on CPUs, with gloo; import it before anything else of torchtitan.

torchtitan takes an accelerator for granted and asks its module for memory and names, which ``torch.cpu`` lacks.
"""

from __future__ import annotations

import os
from types import SimpleNamespace

os.environ["TORCH_COMPILE_DISABLE"] = "1"

import torch.distributed as dist
from torch.nn.attention.flex_attention import create_mask
from torch.nn.functional import scaled_dot_product_attention
from torchtitan.tools import utils

_MODULE = SimpleNamespace(
    set_device=lambda _: None,
    device_count=lambda: 1,
    current_device=lambda: 0,
    synchronize=lambda: None,
    get_device_name=lambda _: "CPU",
    get_device_properties=lambda _: SimpleNamespace(total_memory=1 << 34),
    reset_peak_memory_stats=lambda: None,
    empty_cache=lambda: None,
    memory_stats=lambda _: {},
)
utils.device_type, utils.device_module = "cpu", _MODULE


# After the device is set, which modules of torchtitan take when they are imported.
from torchtitan.models.common.attention import FlexAttention  # noqa: E402


def _attend(query, key, value, *, block_mask, scale, enable_gqa, **_):
    """Return what FlexAttention returns: it has no backward pass on CPUs."""
    mask = create_mask(block_mask.mask_mod, len(query), None, query.shape[2], key.shape[2], device="cpu")
    found = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=enable_gqa)
    return found, None


FlexAttention._compiled_flex_attn = staticmethod(_attend)  # noqa: SLF001

if not hasattr(dist, "set_timeout"):  # in PyTorch since 2.14
    dist.set_timeout = dist.distributed_c10d._set_pg_timeout  # noqa: SLF001
