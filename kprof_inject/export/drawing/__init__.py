"""Scopes on tracks, for viewers."""

LAYOUT_NAMES = ("sm", "cta", "scope")
"""What users call the ways of laying out tracks, the usual one first; ``tracks`` has what they mean."""
