"""`penstock demo`: fill a bucket, train from it, be killed, resume, and say how it went. Made to be copied."""
