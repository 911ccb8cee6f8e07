"""Drawings of scopes on tracks, for viewers."""

LAYOUT_NAMES = ("sm", "cta", "scope")
"""The users' names of the track layouts, the default one first; ``tracks`` has their meanings."""
