"""Does `diff` say why a kernel changed from one Triton to another? Six kernels, compiled by two versions.

Without a GPU, with each Triton in turn, each into a folder of its own:

    PYTHONPATH=.:TRITON_A python two_tritons.py build A
    PYTHONPATH=.:TRITON_B python two_tritons.py build B
    PYTHONPATH=.:TRITON_A python two_tritons.py build BETWEEN --ttgir B
    PYTHONPATH=.:TRITON_B python two_tritons.py build REVERTED --ttgir A

Then on an H100, which needs none of the two versions:

    PYTHONPATH=. python two_tritons.py run A B [--between BETWEEN] [--reverted REVERTED] [--repeats N] -o OUT

``run`` launches the machine code of all sides in turn, through the CUDA driver: without records to time it, and with
records for captures, which ``kprof-inject diff`` compares; and all that in several processes. BETWEEN is B's TTGIR,
which A's Triton compiled further, and REVERTED is A's TTGIR under B's Triton, as an override would have it. What
changes from A to BETWEEN, and from REVERTED to B, is in the TTGIR; the rest is below it. The exit code is 1 if the
sides do not compute the same, within the rounding of their type.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
from builds import KernelBuild, builds_in, write_build
from kernels import KERNELS, Call
from loaded import LoadedCode

from kprof_inject.analysis.comparison.code import WHOLE
from kprof_inject.capture.capture_files import CaptureWriter, KernelRecord, LaunchRecord, ProcessRecord
from kprof_inject.capture.resources import KernelResources
from kprof_inject.capture.schema import plausible_sm_clock_hz
from kprof_inject.runtime.devices.cuda_driver import Driver, l2_bytes, loaded_driver

SIDES = ("A", "B", "between", "reverted")
# Which sides are compared: both Tritons, and the TTGIR alone under each of them.
COMPARED = (("A", "B"), ("A", "between"), ("reverted", "B"))
ROUNDS = 60
LAUNCHES = 21
_CLOCK_KHZ, _SMS = 13, 16  # CU_DEVICE_ATTRIBUTE_CLOCK_RATE, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
# Of half precision and of TF32: sums in another order may differ in their last bits.
TOLERANCE = 2**-8


@dataclass
class Side:
    """One kernel of one side on the device, and what was measured of it."""

    build: KernelBuild
    folder: Path
    plain: LoadedCode
    records: LoadedCode
    times_ns: list[float] = field(default_factory=list)
    buffers: list[tuple[int, bytes]] = field(default_factory=list)
    """When each launch began by the host's clock, and the buffer that it left."""

    @classmethod
    def load(cls, driver: Driver, folder: Path, build: KernelBuild) -> Side:
        codes = (
            LoadedCode(driver, folder / f"{name}.cubin", build.function, code)
            for name, code in (("plain", build.plain), ("records", build.records))
        )
        return cls(build, folder, *codes)

    @property
    def cta_bytes(self) -> int:
        return int(self.build.records.metadata["profile_scratch_size"])

    def record(self, call: Call, values: Sequence[Any]) -> None:
        """Launch it once with records, and keep their buffer."""
        ctas = grid_of(call)[0] * grid_of(call)[1] * grid_of(call)[2]
        buffer = torch.zeros(ctas * self.cta_bytes, dtype=torch.uint8, device="cuda")
        begin_ns = time.time_ns()
        self.records.launch(call.grid, values, buffer.data_ptr())
        self.buffers.append((begin_ns, buffer.cpu().numpy().tobytes()))


def grid_of(call: Call) -> tuple[int, int, int]:
    x, y, z = (*call.grid, 1, 1)[:3]
    return x, y, z


def measure(sides: Mapping[str, Side], call: Call) -> dict[str, float]:
    """Time and record all sides in turn. Returns by how much each one's result differs from the first one's, relative
    to the largest value."""
    (first, *_) = sides.values()
    values = [call.values[name] for name in KERNELS[first.build.name].signature_order()]
    out = call.values[call.out]
    results = {}
    for name, side in sides.items():
        side.plain.launch(call.grid, values)
        results[name] = out.clone()
        out.zero_()
        side.record(call, values)
        if not torch.equal(out, results[name]):
            raise SystemExit(f"{side.build.name} of {name} computes something else with records")
        out.zero_()
    names = list(sides)
    for number in range(ROUNDS):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            sides[name].times_ns.append(sides[name].plain.time_ns(call.grid, values))
    for _ in range(LAUNCHES - 1):
        for side in sides.values():
            side.record(call, values)
    expected = results[names[0]].float()
    largest = expected.abs().max().item()
    return {name: (result.float() - expected).abs().max().item() / largest for name, result in results.items()}


def write_capture(folder: Path, sides: Sequence[tuple[Side, Call]], device: Mapping[str, Any]) -> None:
    """The launches of all kernels of a side, as ``run`` saves them."""
    process = ProcessRecord(pid=0, triton=sides[0][0].build.triton, device_names=(torch.cuda.get_device_name(),))
    writer = CaptureWriter(folder / "process", process)
    for side, call in sides:
        build = side.build
        record = KernelRecord(
            name=build.function,
            layout=build.layout,
            scope_ids=build.scope_ids,
            scopes=build.scope_table,
            mode=build.mode,
            metadata=build.records.metadata,
            clean=KernelResources(**side.plain.resources(), times_ns=tuple(side.times_ns)),
            with_records=KernelResources(**side.records.resources()),
            **device,
        )
        sources = msgspec.json.decode((side.folder / "sources.json").read_bytes(), type=dict[str, str])
        writer.add_kernel(build.name, record, (side.folder / "kernel.ttgir").read_text(), sources)
        for index, (begin_ns, buffer) in enumerate(side.buffers):
            launch = LaunchRecord(
                variant=build.name,
                index=index,
                grid=grid_of(call),
                device=0,
                stream=0,
                host_ns=begin_ns,
                buffer_bytes=len(buffer),
                file="named-later",
            )
            writer.add_launch(launch, memoryview(buffer))
    writer.finish({})


def device_facts(driver: Driver) -> dict[str, Any]:
    def attribute(number: int) -> int:
        value = ctypes.c_int()
        driver.call("cuDeviceGetAttribute", ctypes.byref(value), number, 0)
        return value.value

    clock_hz = plausible_sm_clock_hz(1e3 * attribute(_CLOCK_KHZ))
    return {"sm_clock_hz": clock_hz, "sm_count": attribute(_SMS), "l2_bytes": l2_bytes()}


def output_of(words: Sequence[str]) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def compared(a: Sequence[Path], b: Sequence[Path], out: Path) -> dict[str, Any]:
    """What ``kprof-inject diff`` says of each kernel, by its name in ``kernels.py``; each side has several captures."""
    more = [
        str(word)
        for option, places in (("--more-a", a), ("--more-b", b))
        for one in places[1:]
        for word in (option, one)
    ]
    words = [sys.executable, "-m", "kprof_inject", "diff", str(a[0]), str(b[0]), *more]
    with ThreadPoolExecutor() as pool:
        text, told = pool.map(output_of, (words, [*words, "--json"]))
    out.with_suffix(".txt").write_text(text)
    out.with_suffix(".json").write_text(told)
    return {kernel["b"]["variant"]: kernel for kernel in json.loads(told)["kernels"]}


def change_text(kernel: Mapping[str, Any] | None) -> str:
    if kernel is None:
        return "was not built"
    change = (kernel["without_records"] or kernel["with_records"])["change"]
    if change is None:
        return str(kernel["verdict"])
    return (
        f"{change['percent']:+.1f} % [{change['low_percent']:+.1f}, {change['high_percent']:+.1f}] {kernel['verdict']}"
    )


def explained(kernel: Mapping[str, Any]) -> Iterator[str]:
    """What the comparison says of the code, part by part."""
    structure = kernel["structure"]
    if structure is None or not structure["parts"]:
        differing = structure["differing_lines"] if structure else 0
        yield f"no change was found; {differing} lines of TTGIR differ" if differing else "the TTGIR is the same"
        return
    for part in structure["parts"]:
        texts = dict.fromkeys(
            f"{change['text']}{'' if change['line'] is None else ' (line ' + str(change['line']) + ')'}"
            for change in part["changes"]
        )
        yield f"{part['part']}{share_text(part, structure)}: {'; '.join(texts)}"
    shares = [part["explained"] for part in structure["parts"] if part["explained"] is not None]
    if shares and not structure["only_part"]:
        yield f"elsewhere: {100 * (1 - sum(shares)):.0f} % of the change"


def share_text(part: Mapping[str, Any], structure: Mapping[str, Any]) -> str:
    if part["explained"] is None:
        return ""
    if part["part"] == structure["only_part"]:
        return " (all of the change)"
    share, whole = f"{100 * part['explained']:.0f} % of the change", WHOLE.name
    or_else = f", by this or by what changed in {whole}" if structure["everywhere"] and part["part"] != whole else ""
    return f" ({share}{or_else})"


def run(options: argparse.Namespace) -> int:
    """All repeats, each in a process of its own, and what comes of them."""
    others = [
        word
        for option, place in (("--between", options.between), ("--reverted", options.reverted))
        if place
        for word in (option, place)
    ]
    code = 0
    for number in range(options.repeats):
        print(f"process {number + 1} of {options.repeats}", file=sys.stderr, flush=True)
        words = ["once", options.a, options.b, *others, "-o", options.output / str(number)]
        code |= subprocess.run([sys.executable, __file__, *map(str, words)], check=False).returncode
    captures = {side: sorted(options.output.glob(f"*/{side}")) for side in SIDES}
    if not captures["A"]:
        raise SystemExit("no process came to its end")
    show(options.output, captures)
    return code


def once(options: argparse.Namespace) -> int:
    functions = loaded_driver()
    if functions is None or not torch.cuda.is_available():
        raise SystemExit("run needs a GPU")
    torch.cuda.init()
    driver = Driver(functions)
    places = (options.a, options.b, options.between, options.reverted)
    folders = {side: place for side, place in zip(SIDES, places, strict=True) if place}
    builds = {side: {build.name: (path, build) for path, build in builds_in(place)} for side, place in folders.items()}
    measured: dict[str, list[tuple[Side, Call]]] = {side: [] for side in folders}
    wrong = []
    with driver.context(0):
        device = device_facts(driver)
        for name in [name for name in KERNELS if name in builds["A"] and name in builds["B"]]:
            torch.manual_seed(0)
            call = KERNELS[name].call()
            sides = {side: Side.load(driver, *found[name]) for side, found in builds.items() if name in found}
            for side, difference in measure(sides, call).items():
                print(f"{name}: {side} differs from A by {difference:.2g} of the largest value", file=sys.stderr)
                wrong += [(name, side)] if difference > TOLERANCE else []
            for side, loaded in sides.items():
                measured[side].append((loaded, call))
        for side, of_side in measured.items():
            if of_side:
                write_capture(options.output / side, of_side, device)
    for name, side in wrong:
        print(f"{name}: {side} computes something else than A")
    return bool(wrong)


def show(out: Path, captures: Mapping[str, Sequence[Path]]) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = [
            pool.submit(compared, captures[a], captures[b], out / f"{a}-to-{b}")
            if captures[a] and captures[b]
            else None
            for a, b in COMPARED
        ]
    both, *ttgir_alone = (one.result() if one else {} for one in waiting)
    print(f"{'kernel':15} {'A → B':45} {'A → B in the TTGIR, under A':45} A → B in the TTGIR, under B")
    for name, kernel in both.items():
        print(" ".join([f"{name:15}", *(f"{change_text(one.get(name)):45}" for one in (both, *ttgir_alone))]).rstrip())
        harmless = "" if kernel["verdict"] in ("slower", "faster") else "harmless: "
        for line in explained(kernel):
            print(f"    {harmless}{line}")


def build(options: argparse.Namespace) -> int:
    for name in KERNELS:
        ttgir = options.ttgir / name / "kernel.ttgir" if options.ttgir else None
        try:
            made = write_build(name, options.output / name, ttgir)
        except Exception as error:  # noqa: BLE001 (the compiler's errors have no common base)
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:200]}")
            continue
        print(f"{name}: built by Triton {made.triton}")
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(required=True)
    builder = steps.add_parser("build", help="compile the kernels; needs no GPU")
    builder.add_argument("output", type=Path)
    builder.add_argument("--ttgir", type=Path, help="a folder that was built: compile its TTGIR further")
    builder.set_defaults(step=build)
    for name, step, told in (
        ("run", run, "launch what was built; needs an H100"),
        ("once", once, "the same in this process, without comparing it"),
    ):
        runner = steps.add_parser(name, help=told)
        runner.add_argument("a", type=Path)
        runner.add_argument("b", type=Path)
        runner.add_argument("--between", type=Path)
        runner.add_argument("--reverted", type=Path)
        runner.add_argument("--repeats", type=int, default=4, help="processes (%(default)s)")
        runner.add_argument("-o", "--output", type=Path, required=True)
        runner.set_defaults(step=step)
    options = parser.parse_args()
    sys.exit(options.step(options))


if __name__ == "__main__":
    main()
