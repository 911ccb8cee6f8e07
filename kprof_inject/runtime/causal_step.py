"""The causal step inside the program: time each kernel that has planned delays with each of them."""

from __future__ import annotations

import functools
import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kprof_inject.runtime.compiling.compiler import Compile, variant_of, with_room
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.devices.process_device import devices_of_process
from kprof_inject.runtime.dump_step import install_step, why_left_alone
from kprof_inject.runtime.experiments.kernel_experiment import ExperimentLauncher, KernelExperiment
from kprof_inject.runtime.experiments.watchdog import Watchdog
from kprof_inject.runtime.launch import triton_wrapping
from kprof_inject.runtime.process_events import at_end
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.workspace import DumpedKernel, Workspace


def install(session: Session, report: ProcessReport) -> None:
    """Install the causal step. Called once, right after the import of Triton."""
    step = CausalStep(session, report, devices_of_process())
    install_step(step.compile, session, report)
    at_end(step.finish)


class CausalStep:
    """Experiments with all kernels of this process that have planned delays."""

    def __init__(self, session: Session, report: ProcessReport, device: Device) -> None:
        """Prepare for kernels of the session's workspace; no experiment has begun."""
        self._session = session
        self._report = report
        self._device = device
        self._workspace = Workspace(Path(session.workspace))
        self._experiments: dict[str, KernelExperiment] = {}
        self._watchdog = Watchdog(self._give_up_all)
        self._pid = os.getpid()

    def compile(self, original: Compile, args: Any, kwargs: Any) -> Any:
        """Compile a kernel, and begin its experiment when it is loaded."""
        kernel = with_room(original)(*args, **kwargs)
        with self._report.guard("looking up a kernel's delays"):
            variant = variant_of(self._workspace, original, args, kwargs)
            experiment = self._experiment_of(variant) if variant else None
            if experiment is not None:
                triton_wrapping.around_load(kernel, functools.partial(self._load, experiment))
        return kernel

    def finish(self) -> None:
        """Save the experiments that are not saved yet. Never raises."""
        if os.getpid() == self._pid:  # a forked child cannot query its parent's devices
            for experiment in self._experiments.values():
                with self._report.guard("saving an experiment"):
                    experiment.finish()

    def _experiment_of(self, variant: DumpedKernel) -> KernelExperiment | None:
        delays = self._workspace.delays(variant.variant)
        if delays is None or not fnmatchcase(variant.name, self._session.kernel):
            return None
        dumped = self._workspace.kernel(variant.variant)
        if reason := why_left_alone(dumped):
            self._report.add_kernel(dumped.variant, dumped.name, "left alone", reason)
            return None
        if variant.variant not in self._experiments:
            self._experiments[variant.variant] = KernelExperiment(
                _session=self._session,
                _report=self._report,
                _device=self._device,
                _watchdog=self._watchdog,
                _workspace=self._workspace,
                _dumped=dumped,
                _plan=delays,
            )
        return self._experiments[variant.variant]

    def _load(self, experiment: KernelExperiment, kernel: Any, load: triton_wrapping.Load) -> None:
        load()
        with self._report.guard("preparing an experiment"):
            if not isinstance(kernel._run, ExperimentLauncher):  # set already if an exception ended an earlier attempt
                kernel._run = ExperimentLauncher(kernel, experiment)

    def _give_up_all(self, reason: str) -> None:
        for experiment in self._experiments.values():
            experiment.give_up(reason)
