"""Buffers of other profilers that record inside a kernel: one module for each, with a common interface."""
