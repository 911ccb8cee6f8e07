"""A program's processes are sampled once a context, never in a forked child, and what is not possible has a reason."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kprof_inject.errors import KprofError
from kprof_inject.runtime.counters import program_sampler
from kprof_inject.runtime.counters.cupti import CuptiError
from kprof_inject.runtime.counters.pc_sampler import PcSamples, SampledFunction
from kprof_inject.runtime.counters.program_sampler import ProgramSampler, function_name

BUSY = 9
OURS, TORCHS = SampledFunction("scale", 1), SampledFunction("_ZN2at6native12_GLOBAL__N_14fillIfEEvPT_i", 2)


@dataclass
class Calls:
    """Calls that were made, and the refusals to answer with."""

    made: list[str] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)

    def make(self, name: str) -> None:
        self.made.append(name)
        if name in self.refusals:
            raise CuptiError(self.refusals[name], 26)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()

    class Sampler:
        def __init__(self, cupti: object, context: int, period_log2: int, buffer_bytes: int) -> None:
            self.context = context

        def enable(self) -> None:
            calls.make(f"enable {self.context}")

        def start(self) -> None:
            calls.make("start")

        def stop(self) -> None:
            calls.make("stop")

        def take(self, samples: PcSamples) -> None:
            samples.by_function[OURS][16]["wait"] += 3
            samples.by_function[OURS][32]["wait"] += 4
            samples.by_function[TORCHS][0]["selected"] += 5
            calls.make("take")

        def disable(self) -> None:
            calls.make("disable")

    class Cupti:
        def __init__(self, path: Path) -> None:
            calls.make("load")

        def crc_of(self, cubin: bytes) -> int:
            return len(cubin)

    monkeypatch.setattr(program_sampler, "Cupti", Cupti)
    monkeypatch.setattr(program_sampler, "PcSampler", Sampler)
    monkeypatch.setattr(program_sampler, "loaded_cupti", lambda: Path("libcupti.so.13"))
    monkeypatch.setattr(program_sampler, "current_context", lambda: 7)
    monkeypatch.setattr(program_sampler, "becomes_idle", lambda context, seconds: context != BUSY)
    return calls


def test_a_context_is_sampled_from_its_first_kernel_to_the_end(calls: Calls) -> None:
    sampler = ProgramSampler()
    for _ in range(2):
        sampler.begin()
    sampler.add_variant("scale-0123", b"1")
    found = sampler.finish()
    assert found is not None
    assert calls.made == ["load", "enable 7", "start", "stop", "take", "disable"]
    assert (found.processes, found.not_sampled) == (1, ())
    ours, torchs = found.kernels
    assert (ours.name, ours.variant, dict(ours.reasons)) == ("scale", "scale-0123", {"wait": 7})
    assert [(one.address, dict(one.samples)) for one in ours.instructions] == [(16, {"wait": 3}), (32, {"wait": 4})]
    assert (torchs.variant, dict(torchs.reasons), torchs.instructions) == ("", {"selected": 5}, ())
    assert sampler.finish() is None


def test_a_context_whose_kernel_does_not_end_is_left_alone(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = ProgramSampler()
    sampler.begin()
    monkeypatch.setattr(program_sampler, "current_context", lambda: BUSY)
    sampler.begin()
    found = sampler.finish()
    assert found is not None
    assert found.not_sampled == ("a kernel was still running when it ended",)
    assert calls.made == ["load", "enable 7", "start", "enable 9", "start", "stop", "take", "disable"]


def test_a_device_that_another_process_samples_is_refused_with_the_reason(calls: Calls) -> None:
    calls.refusals["enable 7"] = "another profiler uses the device's counters"
    sampler = ProgramSampler()
    sampler.begin()
    found = sampler.finish()
    assert found is not None
    assert (found.kernels, found.not_sampled) == ((), ("another profiler uses the device's counters",))


def test_a_full_buffer_leaves_what_was_taken(calls: Calls) -> None:
    calls.refusals["take"] = "the device has no memory for its counters"
    sampler = ProgramSampler()
    sampler.begin()
    found = sampler.finish()
    assert found is not None
    assert len(found.kernels) == 2
    assert found.not_sampled == ("the device has no memory for its counters",)


def test_without_cupti_there_is_a_reason(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> Path:
        raise KprofError("there is no CUPTI")

    monkeypatch.setattr(program_sampler, "loaded_cupti", lambda: None)
    monkeypatch.setattr(program_sampler, "find_cupti", find)
    sampler = ProgramSampler()
    sampler.begin()
    sampler.add_variant("scale-0123", b"1")
    found = sampler.finish()
    assert found is not None
    assert found.not_sampled == ("there is no CUPTI",)


def test_a_forked_child_of_a_sampled_process_is_left_alone(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = ProgramSampler()
    sampler.begin()
    made = list(calls.made)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    sampler.begin()
    assert sampler.finish() is None
    assert calls.made == made


def test_without_a_context_there_is_nothing_to_sample(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_sampler, "current_context", lambda: 0)
    sampler = ProgramSampler()
    sampler.begin()
    assert sampler.finish() is None
    assert not calls.made


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("matmul_kernel", "matmul_kernel"),
        ("_Z4axpyfPfS_", "axpy"),
        ("_ZN2at6native12_GLOBAL__N_14fillIfEEvPT_i", "at::native::fill<float>"),
        ("_ZN1a1fIPFvivEEEvT_", "a::f<void (*)(int, void)>"),
        ("_Znonsense", "_Znonsense"),
        ("k" * 5000, "k" * 4096),
    ],
)
def test_a_function_is_shown_without_its_parameters(mangled: str, name: str) -> None:
    assert function_name(mangled) == name
