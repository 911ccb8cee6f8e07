"""Captures: what a run saves, its files, and the layouts of the buffers in them."""
