"""Names that Triton has changed: modules of older versions are compared by today's.

Up to Triton 3.2 its GPU dialects were ``triton_gpu`` and ``triton_nvidia_gpu``, and up to 3.5 AMD's was ``amdgpu``;
``!tt.memdesc``, ``#triton_gpu.shared`` and ``tt.experimental_descriptor_load`` are of the same age.
"""

from __future__ import annotations

import re

from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.parser import parse

_CURRENT = {
    "#triton_gpu.shared<": "#ttg.swizzled_shared<",
    "triton_gpu.": "ttg.",
    "triton_nvidia_gpu.": "ttng.",
    "amdgpu.": "amdg.",
    "!tt.memdesc<": "!ttg.memdesc<",
    "tt.experimental_descriptor_": "tt.descriptor_",
}
_FORMER = re.compile("|".join(rf"(?<![\w.]){re.escape(name)}" for name in _CURRENT))


def with_current_names(module: Module) -> Module:
    """Return the module with today's names; its lines keep their numbers."""
    if not any(name in module.text for name in _CURRENT):
        return module
    return parse(_FORMER.sub(lambda found: _CURRENT[found[0]], module.text), module.file)
