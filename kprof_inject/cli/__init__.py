"""The command line: a module for each command, and the options and output that they share."""
