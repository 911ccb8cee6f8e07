"""Timelines of launches: from raw buffers to columns in nanoseconds, and statistics over them."""
