"""Where a test waits for what has ended."""

from queue import SimpleQueue

from penstock.engine.waiting import Inbox


class Told(Inbox):
    """Keeps what has ended, in that order."""

    def __init__(self):
        super().__init__()
        self.ended = SimpleQueue()

    def finished(self, item):
        self.ended.put(item)

    def all(self, count):
        return [self.ended.get(timeout=60) for _ in range(count)]
