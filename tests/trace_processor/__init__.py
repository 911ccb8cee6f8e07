"""Perfetto's own trace processor, run offline, as a judge of trace files in tests."""
