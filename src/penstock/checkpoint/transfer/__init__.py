"""How pieces of objects reach memory: which requests bring them, where they are staged, tensors as bytes."""
