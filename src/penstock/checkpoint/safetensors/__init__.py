"""Safetensors by URL: one file, or several with an index."""

from penstock.checkpoint.safetensors.verbs import (
    Safetensors,
    Slice,
    load_safetensors,
    open_safetensors,
    save_safetensors,
)

__all__ = ["Safetensors", "Slice", "load_safetensors", "open_safetensors", "save_safetensors"]
