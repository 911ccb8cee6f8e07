"""Listings as nvdisasm prints them, made of short descriptions."""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.machine_code.instructions import MachineFunction, read_nvdisasm

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
