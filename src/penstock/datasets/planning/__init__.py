"""What an epoch costs before it is read: requests, bytes, memory, time; and what would cost less."""
