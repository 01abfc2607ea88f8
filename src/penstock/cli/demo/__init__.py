"""`penstock demo`: fill a bucket, train from it, kill and resume the training, and report. A template to copy.

``story.Demo.run`` serves a bucket (``embedded``) or takes the user's (``borrow_prefix``), uploads images, runs
``train.py`` in a process that it kills in the middle of an epoch, runs it again, and reports what ``Tally`` counted.
"""

# Enough for 98 % and more. Defined here so that the help can show it without the imports of the demo.
EPOCHS = 4
