"""Events of Proton's language in its buffer, which are refused, and how Triton's compiler packs them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from buffers import Cta, Entry, buffer_words, end, start
from proton_files import save_file
from triton_oracle import triton

from kprof_inject.capture.buffer_layouts import EVENT_SHIFT, SCOPE_SHIFT
from kprof_inject.capture.proton_buffer import names_of_ttgir, read_proton_buffer
from kprof_inject.errors import KprofError

WORK, COPY = range(2)


def saved(tmp_path: Path, *written: Entry) -> Path:
    return save_file(tmp_path, buffer_words([Cta([written], pre_final_ns=1000, post_final_ns=1100)], 8), 1)


def test_a_buffer_with_events_is_refused(tmp_path: Path) -> None:
    events = (Entry(COPY, is_end, 20, is_event=True) for is_end in (False, True))
    with pytest.raises(KprofError, match="events of Proton's language") as error:
        read_proton_buffer(saved(tmp_path, start(WORK, 10), *events, end(WORK, 30)))
    assert error.value.hint == "record the kernel with scopes alone"


def test_a_damaged_entry_with_the_flag_of_an_event_is_none(tmp_path: Path) -> None:
    damaged = Entry(COPY, False, 20, is_event=True)
    assert len(read_proton_buffer(saved(tmp_path, start(WORK, 10), damaged, end(WORK, 30))).launches) == 1


MODULE = """\
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90", \
"ttg.threads-per-warp" = 32 : i32} {
  tt.func public @kernel(%p: !tt.ptr<i32>, %n: i32) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %other = proton.allocate_event "other" : i32
    proton.record start "body"
    %copy = proton.allocate_event "copy" : i32
    scf.for %i = %c0 to %n step %c1 : i32 {
      proton.event start %copy : i32
      tt.store %p, %i : !tt.ptr<i32>
      proton.event end %copy : i32
    }
    proton.event start %other : i32
    proton.record end "body"
    proton.event end %other : i32
    tt.return
  }
}
"""
# The constant that the upper 11 bits of the clock are joined with: ``or.b32 %r1, %r2, 8388608``.
FIRST_WORD = re.compile(r"or\.b32\s+%r\d+, %r\d+, (-?\d{6,});")


@pytest.mark.triton
@pytest.mark.skipif(triton.__version__ < "3.9", reason="earlier ones have no events")
def test_events_are_packed_and_numbered_as_triton_does(tmp_path: Path) -> None:
    from triton.backends.compiler import GPUTarget

    from kprof_inject.capture.mode import Mode
    from kprof_inject.runtime.compiling.instrumentation import lower, scope_names

    target: Any = GPUTarget("cuda", 90, 32)
    path = tmp_path / "kernel.ttgir"
    path.write_text(MODULE)
    ids = scope_names(str(path), target)
    assert ids == names_of_ttgir(MODULE, "kernel.ttgir") == {0: "other", 1: "body", 2: "copy"}
    number = {name: scope_id for scope_id, name in ids.items()}
    ptx = lower(MODULE, target, {"num_warps": 4}, Mode(buffer="global")).assembly
    words = [int(word) & 0xFFFFFFFF for word in FIRST_WORD.findall(ptx)]
    body, event, is_end = number["body"] << SCOPE_SHIFT, 1 << EVENT_SHIFT, 1 << 31
    copy, other = (number[name] << SCOPE_SHIFT | event for name in ("copy", "other"))
    assert words == [body, copy, copy | is_end, other, body | is_end, other | is_end]
