"""The command line's commands, one file a group."""
