"""Fixtures with records, tags or delays compile to machine code; the clock is read once for each record."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import triton
from golden import beside, fixture_id, form_of, kernel_of, read
from planning import fixture_view, insertion_of, plan_of, plans_of, tagged_loops, view_of_text
from snapshots import check
from specialised import warps_of_partitions
from triton._C.libtriton import ir, llvm, passes
from triton.backends.compiler import GPUTarget
from triton_oracle import installed_fixtures, one_of_each_kernel

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.schema import RECORDS_OF_TAG, Target
from kprof_inject.errors import KprofError
from kprof_inject.rewrite import apply, inserted
from kprof_inject.runtime.compiling import instrumentation
from kprof_inject.runtime.compiling.instrumentation import Lowered, lower, lower_without_records, read_module, target_of
from kprof_inject.runtime.compiling.module_check import module_target
from kprof_inject.runtime.versions import installed_version
from kprof_inject.select.delays import Delay, spin_kernel
from kprof_inject.select.module_view import ModuleView, lowerable
from kprof_inject.select.plan import Plan, make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.tags import CARRIER, HALF_CARRIER
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.scalars import scalars_at

ELF = b"\x7fELF"
SHARED = Mode("shared")
GLOBAL = Mode("global", 16384)

FIXTURES = installed_fixtures()
# Large kernels that have no operation which another has not. Compiling them takes the longest.
LIKE_OTHERS = {"gelu_matmul", "marked_attention", "marked_matmul", "splitk_matmul"}
# In another form than the usual, one is enough.
LOWERED = [
    path
    for path in one_of_each_kernel()
    if kernel_of(path) not in LIKE_OTHERS and (not form_of(path) or kernel_of(path) == "while_if")
]
# With other Tritons than ours, a third, and with their neighbours another one.
EVERY_THIRD = {"3.5.1": 0, "3.7.1": 1, "3.8.0": 2, "3.9.0": 0}
if triton.__version__ in EVERY_THIRD:
    LOWERED = LOWERED[EVERY_THIRD[triton.__version__] :: 3]
ON_CUDA = [path for path in FIXTURES if path.parent.name.startswith("cuda")]
ON_HIP = [path for path in FIXTURES if path.parent.name.startswith("hip")]
ON_HOPPER = [path for path in FIXTURES if path.parent.name == "cuda-90"]
# Straight, with loops, branches, calls, partitions, and shared memory of its own.
OF_EACH_KIND = [
    path
    for path in ON_HOPPER
    if kernel_of(path)
    in {"vector_add", "softmax", "early_return", "loop_in_if", "while_if", "noinline_in_loop", "gluon_warp_specialized"}
    and not form_of(path)
]


# LLVM makes one clock read of the two on the ways out of a branch; each way stores it for its own record.
ONE_READ_ON_TWO_WAYS = {"cross_entropy", "loop_in_if", "while_condition"} - (
    {"while_condition"} if triton.__version__.startswith("3.5.") else set()
)

DRAIN = """\
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "hip:gfx1250", \
"ttg.threads-per-warp" = 32 : i32} {
  tt.func public @drain(%out: !tt.ptr<i32> {tt.divisibility = 16 : i32}, %n: i32) attributes {noinline = false} {
    %t = amdg.async_tdm_intrinsic_wait  {count = 0 : i32}
    tt.store %out, %n : !tt.ptr<i32>
    tt.return
  }
}
"""


def test_records_that_read_no_clock_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    path = OF_EACH_KIND[0]
    monkeypatch.setattr(instrumentation, "_CLOCK_READ", {"cuda": re.compile("no such instruction")})
    with pytest.raises(KprofError, match="records for cuda:90 without reading the clock"):
        lower(insertion_of(read(path)).text, *described(path), SHARED)


@pytest.mark.triton
@pytest.mark.skipif(triton.__version__ < "3.9", reason="earlier ones do not know gfx1250")
def test_gfx1250_reads_its_clock_for_each_record() -> None:
    target = GPUTarget("hip", "gfx1250", 32)
    done = insertion_of(DRAIN, "func", "async")

    # LLVM makes two reads of one, on two ways.
    assert lower(done.text, target, {}, SHARED).clock_reads == len(done.plan.records) + 1 == 5


def described(path: Path) -> tuple[GPUTarget, dict[str, Any]]:
    """The target and the options that a fixture is compiled for."""
    values = json.loads(beside(path, ".json").read_text())
    return target_of(Target(**values["target"])), values["options"]


def shared_bytes(path: Path) -> int:
    """The shared memory that a fixture takes without records."""
    return int(json.loads(beside(path, ".json").read_text())["shared"])


def reads_of(view: ModuleView, plan: Plan) -> int:
    """One for each record, and those of a helper for each of its calls."""
    copies = {scope.record: view.copies_of_functions[scope.function] for scope in plan.scopes}
    return sum(copies.get(record.name, 1) for record in plan.records)


def lowered(path: Path, view: ModuleView, plan: Plan, mode: Mode) -> Lowered:
    """Compile a fixture with a plan's records, and hold what holds for all."""
    target, options = described(path)
    made = lower(lowerable(parse(apply(view.module, plan))), target, options, mode)

    # Where a loop is left or goes on, LLVM may make one read of the two that follow, one on each way. It may also peel
    # an iteration off a loop, and the reads in it are then there twice; on AMD it unrolls loops.
    assert made.clock_reads >= reads_of(view, plan) / 2
    assert made.clock_reads <= 2 * reads_of(view, plan) or target.backend == "hip"
    assert made.binary.startswith(ELF)
    assert made.metadata["name"] == plan.table.kernel
    return made


@pytest.mark.triton
@pytest.mark.parametrize("path", LOWERED, ids=fixture_id)
def test_a_fixture_with_the_default_records(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    default_records_lower(path)
    assert capfd.readouterr() == ("", ""), "Proton warns of ends"


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", FIXTURES, ids=fixture_id)
def test_a_fixture_of_any_target_with_the_default_records(path: Path) -> None:
    default_records_lower(path)


def default_records_lower(path: Path) -> None:
    view = fixture_view(read(path))
    plan = make_plan(view, ())
    made = lowered(path, view, plan, SHARED)
    if path in ON_CUDA:
        assert made.clock_reads == reads_of(view, plan) - (kernel_of(path) in ONE_READ_ON_TWO_WAYS)
    assert made.metadata["profile_scratch_size"] > 0
    assert made.metadata["shared"] > shared_bytes(path)


@pytest.mark.skipif("nvidia" not in installed_version().global_buffer_on, reason="no records in global memory")
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.triton if path in OF_EACH_KIND else pytest.mark.exhaustive)
        for path in ON_HOPPER
    ],
    ids=fixture_id,
)
def test_a_fixture_whose_records_stay_in_global_memory(path: Path) -> None:
    view = fixture_view(read(path))
    made = lowered(path, view, make_plan(view, ()), GLOBAL)
    assert made.metadata["profile_scratch_size"] > GLOBAL.buffer_bytes
    assert made.metadata["shared"] == shared_bytes(path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", FIXTURES, ids=fixture_id)
def test_a_fixture_with_every_selector_set(path: Path) -> None:
    view = fixture_view(read(path))
    for plan in plans_of(view):
        if plan.scopes:
            lowered(path, view, plan, SHARED)


@pytest.mark.triton
@pytest.mark.parametrize("name", ["__add__", "a__b"])
def test_a_kernel_may_have_underscores_in_its_name(name: str) -> None:
    (path,) = (path for path in OF_EACH_KIND if kernel_of(path) == "vector_add")
    view = fixture_view(read(path))
    text = view.module.text.replace(f"@{view.kernel}(", f"@{name}(")
    renamed = ModuleView(parse(text), view.sources)
    made = lowered(path, renamed, make_plan(renamed, ()), SHARED)
    assert f".entry {name}(" in made.assembly
    assert "another_name" not in made.assembly


@pytest.mark.triton
def test_a_helper_with_records_is_inlined_for_proton_and_refused_without() -> None:
    (path,) = (path for path in ON_HOPPER if fixture_id(path).endswith("/noinline_in_loop"))
    text = insertion_of(read(path), "op(tt.load)").text
    assert lower(lowerable(parse(text)), *described(path), SHARED).clock_reads == 8
    with pytest.raises(KprofError, match="does not lower this module"):
        lower(text, *described(path), SHARED)


@pytest.mark.triton
@pytest.mark.parametrize("path", OF_EACH_KIND, ids=fixture_id)
def test_a_fixture_without_records_reads_no_clock(path: Path) -> None:
    assert lower_without_records(read(path), *described(path)).clock_reads == 0


HEAD = 'module attributes {"ttg.num-warps" = 4 : i32} {\n  tt.func public @k() {\n'


@pytest.mark.triton
@pytest.mark.parametrize(
    ("text", "name"),
    [
        (HEAD + "    tt.retur\n", "not compiled"),
        (HEAD + "    tt.no_such_operation\n    tt.return\n  }\n}\n", "not compiled"),
        *((text, "no kernel") for text in ("", "import triton\n", "module {\n}\n")),
    ],
)
def test_what_triton_does_not_compile_is_refused(text: str, name: str) -> None:
    with pytest.raises(KprofError) as caught:
        lower(text, *described(ON_HOPPER[0]), SHARED)
    assert name == "no kernel" or " does not lower this module for cuda:90: " in caught.value.what
    check("runtime/lower", caught.value.hint if name == "not compiled" else str(caught.value), name)


# Tags in machine code

WAYS = [
    ("cuda-90/nested_loops", Mode("shared")),
    ("cuda-100/ws_matmul", Mode("global", 16384, 32)),
    ("hip-gfx942/nested_loops", Mode("shared")),
    ("hip-gfx942/nested_loops", Mode("global", 16384, 32)),
]
"""What reads the clock as a whole and in halves, with partitions, in each memory."""

CLOCK = re.compile(r"mov\.u32\s+(%r\d+), %clock;")
STORED = re.compile(r"st\.(?:shared|global)\S*\.v2\.b32 \[[^]]*\], \{ ?(%r\d+), (%r\d+) ?\}")


def assembly_of(path: Path, text: str, mode: Mode) -> str:
    return lower(text, *described(path), mode).assembly


def can_lower(path: Path, mode: Mode) -> bool:
    backend = "amd" if path.parent.name.startswith("hip") else "nvidia"
    return mode.buffer == "shared" or backend in installed_version().global_buffer_on


def fixture(kernel: str) -> Path:
    return next(path for path in installed_fixtures() if fixture_id(path).endswith(f"/{kernel}"))


@pytest.mark.triton
@pytest.mark.parametrize(("kernel", "mode"), WAYS)
def test_the_stores_of_tags_have_their_values(kernel: str, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fixture(kernel)
    if not can_lower(path, mode):
        pytest.skip("no records in global memory")
    text = insertion_of(read(path), *tagged_loops(read(path)), "func").text
    tags = text.count(CARRIER)
    assert tags
    modules: list[str] = []
    before = llvm.to_module

    def seen(module: Any, *arguments: Any) -> Any:
        modules.append(str(module))
        return before(module, *arguments)

    monkeypatch.setattr(llvm, "to_module", seen)
    assembly = assembly_of(path, text, mode)
    (module,) = modules
    names = re.findall(rf'(%\d+) = llvm\.inline_asm [^\n]*"{CARRIER}"', module)
    assert len(names) == tags
    for name in names:
        assert len(re.findall(rf"{name}\b", module)) == 1 + RECORDS_OF_TAG, "uses of a tag's value"
    if path.parent.name.startswith("cuda"):
        clocks = set(CLOCK.findall(assembly))
        stored = [low for _, low in STORED.findall(assembly)]
        values = [low for low in stored if low not in clocks]
        assert len(values) >= RECORDS_OF_TAG * tags
        assert len(stored) - len(values) == text.count("proton.record") - RECORDS_OF_TAG * tags


@pytest.mark.triton
@pytest.mark.parametrize("kernel", ["cuda-90/attention", "hip-gfx942/attention"])
def test_a_wide_value_is_stored_in_halves(kernel: str) -> None:
    path = fixture(kernel)
    view = view_of_text(read(path))
    loop = view.functions[0].loops[0]
    value = next(one.name for one in scalars_at(view.module, loop.operation) if one.type == "i64")
    done = insertion_of(read(path), f"loop{loop.subscript} --tag wide={value}", "func")
    assert done.text.count(HALF_CARRIER) == 2
    # The values take the place of the counter, which is still read.
    made = lower(done.text, *described(path), Mode("shared"))
    assert made.clock_reads == len(done.plan.records) or kernel.startswith("hip")


# Delays become machine code; partitions have the warps that Triton chooses

_CLOCK = {"cuda": re.compile(r"mov\.u32 (?:begin|now), %clock;"), "hip": re.compile(r"\bs_memtime\b")}
SELECTORS = parse_selectors(["parts", "func", "loop", "iter"])


# Straight, with loops, branches, calls, partitions, descriptors, copies in flight, and of each target.
OF_EACH_PLACE = {
    *("gluon_async_pipeline", "tma_matmul", "ws_matmul", "loop_in_if", "while_if", "noinline_in_loop", "early_return"),
    *("gluon_warp_specialized", "map_elementwise"),
}
WITH_PLACES = [path for path in one_of_each_kernel() if kernel_of(path) in OF_EACH_PLACE and not form_of(path)]


@pytest.mark.triton
@pytest.mark.parametrize("path", WITH_PLACES, ids=fixture_id)
def test_delays_become_machine_code(path: Path) -> None:
    view = fixture_view(read(path))
    target = module_target(view.module)
    plan = make_plan(view, SELECTORS)
    text = inserted(view.module, [Delay(site.start, 100, number, target) for number, site in enumerate(plan.sites)])
    assert text.count("%kprof_delay_") == len(plan.scopes)
    lowered = lower_without_records(text, target_of(target), {})
    assert lowered.binary[:4] == b"\x7fELF"
    # LLVM may unroll a loop, or join the same code of two ways.
    assert len(_CLOCK[target.backend].findall(lowered.assembly)) >= len(plan.scopes)


@pytest.mark.triton
def test_the_kernel_that_measures_delays_is_ptx(tmp_path: Path) -> None:
    ptxas = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    (tmp_path / "spins.ptx").write_text(spin_kernel(Target("cuda", 90), [0, 100, 5000]))
    subprocess.run([ptxas, "-arch", "sm_90", tmp_path / "spins.ptx", "-o", tmp_path / "spins.cubin"], check=True)
    assert (tmp_path / "spins.cubin").stat().st_size


@pytest.mark.triton
def test_a_target_without_a_counter_is_refused() -> None:
    with pytest.raises(KprofError):
        spin = Delay(make_plan(fixture_view(read(one_of_each_kernel()[0])), SELECTORS).sites[0].start, 1, 0,
                     Target("hip", "gfx1250", 32))  # fmt: skip
        _ = spin.line


# Triton's own choice of the warps that run each partition

SPECIALISED = [path for path in installed_fixtures() if "ttg.warp_specialize(" in read(path) and not form_of(path)]


@pytest.mark.triton
@pytest.mark.skipif(triton.__version__.startswith("3.5."), reason="its passes are run otherwise")
@pytest.mark.parametrize("path", SPECIALISED, ids=fixture_id)
def test_the_warps_are_those_that_triton_chooses(path: Path, tmp_path: Path) -> None:
    text = read(path)
    copy = tmp_path / "kernel.ttgir"
    copy.write_text(text)
    arch = int(path.parent.name.removeprefix("cuda-"))
    module = read_module(str(copy), GPUTarget("cuda", arch, 32))
    manager = ir.pass_manager(module.context)
    passes.ttgpuir.add_allocate_warp_groups(manager)
    manager.run(module, "warps")
    (told,) = re.findall(r"warpGroupStartIds = array<i32: ([\d, ]+)>", str(module))
    ours = [warps[0] for warps in warps_of_partitions(plan_of(text, "func"))[1:]]
    # Behind the module's own partitions stand the idle ones.
    assert ours == [int(start) for start in told.split(",")][: len(ours)]
