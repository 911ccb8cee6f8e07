"""Traces and tables of launches, and decorators for functions that add to traces."""

from kprof_inject.export.hooks import ScopeArgs, ScopeArrows
from kprof_inject.export.hooks import counters as counters

scope_args, arrows = ScopeArgs, ScopeArrows
