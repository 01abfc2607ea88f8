"""`penstock demo`: fill a bucket, train from it, be killed, resume, and say how it went. Made to be copied."""

__all__ = ["EPOCHS"]

EPOCHS = 4  # 98 % and more; the command's help says it, without all that the demo needs
