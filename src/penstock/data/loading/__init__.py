"""Loading of batches: threads or workers that decode ahead, resumable state, and copies to the device."""
