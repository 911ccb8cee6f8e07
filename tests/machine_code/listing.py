"""Listings as nvdisasm and LLVM print them, made of short descriptions."""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.machine_code.instructions import MachineFunction, read_assembly, read_nvdisasm

FILE = "kernel.ttgir"
NONE = 7


def encoded(stall: int = 1, result: int = NONE, operand: int = NONE, awaited: Sequence[int] = ()) -> int:
    """The upper word of an encoding with these control bits, and with other bits that mean something else."""
    mask = sum(1 << board for board in awaited)
    return (mask << 11 | operand << 8 | result << 5 | stall) << 41 | (1 << 63 | 0x1234)


def instruction(address: int, text: str, control: int) -> str:
    return f"        /*{address:04x}*/  {text} ;   /* 0x{address:016x} */\n{'':60}/* 0x{control:016x} */\n"


def listing(*parts: str | tuple[str, int], name: str = "kernel") -> str:
    """A section whose parts are labels (``.L_x_0:``), lines (``#12``), and instructions, maybe with control bits."""
    lines = [f'\t.section\t.text.{name},"ax",@progbits\n', f"{name}:\n", f".text.{name}:\n"]
    address = 0
    for part in parts:
        text, control = (part, encoded()) if isinstance(part, str) else part
        if text.endswith(":"):
            lines.append(f"{text}\n")
        elif text.startswith("#"):
            lines.append(f'\t//## File "/tmp/x/{FILE}", line {text[1:]}\n')
        else:
            lines.append(instruction(address, text, control))
            address += 16
    return "".join(lines)


def function(*parts: str | tuple[str, int]) -> MachineFunction:
    (found,) = read_nvdisasm(listing(*parts), FILE)
    return found


def assembly(*parts: str, name: str = "kernel", processor: str = "gfx942") -> str:
    """AMD's assembly, whose parts are labels (``.LBB0_1:``), lines (``#12``), and instructions."""
    lines = [
        f'\t.amdgcn_target "amdgcn-amd-amdhsa--{processor}"',
        f"\t.type\t{name},@function",
        f"{name}:                          ; @{name}",
        "; %bb.0:",
        f'\t.file\t1 "/tmp/x" "{FILE}"',
    ]
    for part in parts:
        if part.endswith(":"):
            lines.append(f"{part}      ; =>This Inner Loop Header: Depth=1")
        elif part.startswith("#"):
            lines.append(f"\t.loc\t1 {part[1:]} 5 is_stmt 0          ; {FILE}:{part[1:]}:5")
        else:
            lines.append(f"\t{part}")
    lines += [
        '\t.section\t.rodata,"a",@progbits', f"\t.amdhsa_kernel {name}", "\t.text",
        ".Lfunc_end0:", f"\t.size\t{name}, .Lfunc_end0-{name}", f"\t.set {name}.num_vgpr, 4",
        "---", "amdhsa.kernels:", "  - .agpr_count:     0",
    ]  # fmt: skip
    return "\n".join([*lines, ""])


def amd_function(*parts: str, processor: str = "gfx942") -> MachineFunction:
    (found,) = read_assembly(assembly(*parts, processor=processor), FILE)
    return found
