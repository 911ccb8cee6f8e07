"""One module as the selectors look at it: its functions, the source behind it, and what the two have to do with
each other."""

from __future__ import annotations

import re
from functools import cached_property

from kprof_inject.select.calls import (
    InlinedCall,
    KeptCall,
    callee_symbol,
    calls_in,
    copies_when_inlined,
    inlined_calls,
    with_callers,
)
from kprof_inject.select.functions import Function, functions_of, kernel_name
from kprof_inject.select.markers import Marker, markers_in
from kprof_inject.select.partitions import Partitions
from kprof_inject.select.python_source import SourceFunction, Sources
from kprof_inject.ttgir.locations import LocationTable
from kprof_inject.ttgir.nodes import Module

# Triton mangles a helper's name: its module, its own name, and behind two underscores the types of its arguments.
_MANGLED = re.compile(r"(?:\w+\.)*(\w+?)__")


class ModuleView:
    """Everything that a selector may ask of a module; what costs time is found out when it is first asked for."""

    def __init__(self, module: Module, sources: Sources) -> None:
        self.module = module
        self.sources = sources
        self.functions: tuple[Function, ...] = with_callers(functions_of(module, LocationTable(module)))
        self.kernel = kernel_name(self.functions)

    @cached_property
    def kernel_file(self) -> str:
        """The file that the kernel function was written in; empty if that is unknown."""
        kernels = (function for function in self.functions if function.symbol == self.kernel)
        return next((point.file for kernel in kernels for point in kernel.source_of(kernel.operation)), "")

    @cached_property
    def inlined_calls(self) -> tuple[tuple[Function, InlinedCall], ...]:
        """The calls of helpers that were inlined into each function."""
        return tuple((function, call) for function in self.functions for call in inlined_calls(function, self.sources))

    @cached_property
    def markers(self) -> tuple[Marker, ...]:
        """The marker comments in the functions that went into this module. Raises ``KprofError`` for a wrong one."""
        found = [marker for file in self.sources.files for marker in markers_in(self.sources, file)]
        # Looking at every location pays only if there are markers at all.
        used = self._source_functions if found else frozenset()
        return tuple(marker for marker in found if marker.function in used)

    @cached_property
    def _source_functions(self) -> frozenset[SourceFunction]:
        points = {
            point
            for function in self.functions
            for operation in function.operation.walk()
            for chain in function.chains_of(operation)
            for point in chain
        }
        found = (self.sources.function_at(point.file, point.line) for point in points)
        return frozenset(function for function in found if function is not None)

    @cached_property
    def helper_names(self) -> dict[str, str]:
        """What each function that was not inlined is called in the source, by its symbol."""
        return {function.symbol: self._source_name(function) for function in self.functions}

    @cached_property
    def kept_calls(self) -> tuple[KeptCall, ...]:
        """The calls of helpers that were not inlined."""
        names = self.helper_names
        return tuple(
            KeptCall(names[callee_symbol(operation)], function, operation)
            for function in (self.functions if len(names) > 1 else ())
            for operation in calls_in(function)
            if callee_symbol(operation) in names
        )

    @cached_property
    def partitions(self) -> Partitions:
        """The partitions of the kernel, and what belongs to each."""
        return Partitions(self.module, self.functions, self.sources)

    @cached_property
    def copies_of_functions(self) -> dict[str, int]:
        """How often each function's body stands in the kernel once every call is inlined, by its symbol."""
        return copies_when_inlined(self.functions)

    def _source_name(self, function: Function) -> str:
        for chain in function.chains_of(function.operation):
            written = self.sources.function_at(chain[0].file, chain[0].line)
            if written is not None:
                return written.name
        mangled = _MANGLED.match(function.symbol)
        return mangled[1] if mangled else function.symbol
