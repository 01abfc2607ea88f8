"""What the user said, by URL, option, environment or file, turned into settings that can be acted upon."""
