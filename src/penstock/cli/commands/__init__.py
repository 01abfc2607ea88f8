"""One module for each command: its options, help, example and body."""
