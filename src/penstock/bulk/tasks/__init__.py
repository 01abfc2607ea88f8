"""Many objects at once: one coroutine for each, and what carries them all out."""
