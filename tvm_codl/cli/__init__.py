"""The command line: one file a command; parses and prints, holds no logic."""
