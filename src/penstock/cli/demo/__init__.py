"""`penstock demo`: fill a bucket, train from it, kill and resume the training, and report. A template to copy."""

__all__ = ["EPOCHS"]

# Enough for 98 % and more. Defined here so that the help can show it without the imports of the demo.
EPOCHS = 4
