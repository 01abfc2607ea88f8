"""What each command does, apart from what the commands share."""
