"""Transfer of object ranges into memory: request planning, staging buffers, verification, tensors as bytes."""
