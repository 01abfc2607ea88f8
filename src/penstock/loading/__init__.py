"""From batches to a training loop: threads or workers that decode ahead, state, and the way to the device."""
