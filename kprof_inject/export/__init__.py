"""Traces and tables of launches, and hooks that add to traces."""

from kprof_inject.export.hooks import arrows as arrows
from kprof_inject.export.hooks import counters as counters
from kprof_inject.export.hooks import scope_args as scope_args
