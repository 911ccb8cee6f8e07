"""Explanations of a launch for programs that tune its kernel."""
