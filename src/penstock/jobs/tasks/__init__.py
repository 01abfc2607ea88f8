"""Work on many objects at once: one coroutine for each, and the pool that runs them."""
