"""CUPTI's PM sampling, of a library that counts what the test says; and the process that samples the links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_char_p, c_double
from typing import Any

import pytest

from kprof_inject.capture.encoding import decode
from kprof_inject.capture.link_traffic import DeviceTraffic, LinkTrafficRecord
from kprof_inject.errors import KprofError
from kprof_inject.runtime.counters import link_process
from kprof_inject.runtime.counters.cupti import CuptiError, structure
from kprof_inject.runtime.counters.link_process import READY, RECEIVED, SENT
from kprof_inject.runtime.counters.pm_sampler import PmSampler, Sample

INTERVAL_NS = 50_000
UUIDS = ("GPU-0", "GPU-1")
Counted = tuple[int, tuple[float, ...]]


class Library:
    """A CUPTI that knows these metrics, and decodes ``counted``: a begin and values for each sample."""

    def __init__(self, metrics: Sequence[str] = (SENT, RECEIVED), counted: Sequence[Sequence[Counted]] = ()) -> None:
        self.metrics = metrics
        self.called: list[str] = []
        self.configured: dict[str, Any] = {}
        self._counted = list(counted)
        self._decoded: list[Counted] = []
        self.overflows = ""
        self.room = 100
        self.incomplete = 0

    def call(self, function: str, kind: str, **fields: Any) -> Any:
        self.called.append(function)
        answer = getattr(self, f"_{function}", None)
        return structure(kind)(**{**fields, **(answer(fields) if answer else {})})

    def _cuptiDeviceGetChipName(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"pChipName": b"GH100"}

    def _cuptiPmSamplingGetCounterAvailability(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"counterAvailabilityImageSize": 8}

    def _cuptiProfilerHostInitialize(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        assert fields["profilerType"] == 1
        return {"pHostObject": 7}

    def _cuptiProfilerHostConfigAddMetrics(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        names = (c_char_p * fields["numMetrics"]).from_address(fields["ppMetricNames"])
        if any(name.decode() not in self.metrics for name in names):
            raise CuptiError("there is no such metric", 1)
        return {}

    def _cuptiProfilerHostGetConfigImageSize(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"configImageSize": 16}

    def _cuptiPmSamplingEnable(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"pPmSamplingObject": 9}

    def _cuptiPmSamplingSetConfig(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        self.configured = dict(fields)
        return {}

    def _cuptiPmSamplingGetCounterDataSize(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"counterDataSize": 32}

    def _cuptiPmSamplingDecodeData(self, _: Mapping[str, Any]) -> dict[str, Any]:
        if self.overflows == "error":
            raise CuptiError("the device has no memory for its counters", 8)
        new = self._counted.pop(0) if self._counted else []
        self._decoded = [*self._decoded, *new]
        # The image holds this number of samples.
        rest, self._decoded = self._decoded[self.room :], self._decoded[: self.room]
        if rest:
            self._counted.insert(0, rest)
        return {"overflow": int(self.overflows == "flag"), "decodeStopReason": 1 if rest else 2}

    def _cuptiPmSamplingCounterDataImageInitialize(self, _: Mapping[str, Any]) -> dict[str, Any]:
        self._decoded = []
        return {}

    def _cuptiPmSamplingGetCounterDataInfo(self, _: Mapping[str, Any]) -> dict[str, Any]:
        count = len(self._decoded)
        return {"numCompletedSamples": count - self.incomplete, "numPopulatedSamples": count}

    def _cuptiProfilerHostEvaluateToGpuValues(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        values = (c_double * fields["numMetrics"]).from_address(fields["pMetricValues"])
        values[:] = self._decoded[fields["rangeIndex"]][1]
        return {}

    def _cuptiPmSamplingCounterDataGetSampleInfo(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        begin_ns = self._decoded[fields["sampleIndex"]][0]
        return {"startTimestamp": begin_ns, "endTimestamp": begin_ns + INTERVAL_NS}


def sampler(library: Library, metrics: Sequence[str] = (SENT, RECEIVED)) -> PmSampler:
    return PmSampler(library, 0, metrics, INTERVAL_NS)  # type: ignore[arg-type]


def test_samples_in_which_nothing_was_counted_are_left_out() -> None:
    library = Library(counted=[[(100, (0.0, 0.0)), (200, (32.0, 0.0))], [], [(50_200, (0.0, 16.0))]])
    found = sampler(library)
    found.start()
    assert list(found.take()) == [Sample(200, 200 + INTERVAL_NS, (32.0, 0.0))]
    assert list(found.take()) == []
    found.stop()
    assert list(found.take()) == [Sample(50_200, 50_200 + INTERVAL_NS, (0.0, 16.0))]
    assert library.configured["samplingInterval"] == INTERVAL_NS
    assert (found.from_ns, found.to_ns) == (100, 50_200 + INTERVAL_NS)


def test_a_sample_that_is_not_complete_is_taken_later() -> None:
    library = Library(counted=[[(100, (1.0, 0.0)), (50_100, (2.0, 0.0))], [(100_100, (3.0, 0.0))]])
    library.incomplete = 1
    found = sampler(library)
    assert [sample.values[0] for sample in found.take()] == [1.0]
    library.incomplete = 0
    assert [sample.values[0] for sample in found.take()] == [2.0, 3.0]
    assert found.gaps_ns == []


def test_a_gap_between_samples_is_noted() -> None:
    library = Library(counted=[[(100, (0.0, 0.0))], [(50_100, (0.0, 0.0))], [(200_100, (5.0, 0.0))]])
    found = sampler(library)
    for _ in range(3):
        list(found.take())
    assert found.gaps_ns == [(100_100, 200_100)]


def test_samples_that_do_not_fit_are_decoded_again() -> None:
    library = Library(counted=[[(100 * number, (1.0 * number, 0.0)) for number in range(7)]])
    library.room = 2
    assert [sample.begin_ns for sample in sampler(library).take()] == [100, 200, 300, 400, 500, 600]


def test_a_chip_without_the_metrics_is_not_sampled() -> None:
    library = Library(metrics=())
    assert sampler(library).metrics == ()
    assert "cuptiPmSamplingEnable" not in library.called


@pytest.mark.parametrize("how", ["flag", "error"])
def test_lost_samples_are_an_error(how: str) -> None:
    library = Library(counted=[[(200, (32.0, 0.0))]])
    library.overflows = how
    with pytest.raises(CuptiError):
        list(sampler(library).take())


def _ended_after(looks: int) -> Any:
    """A ``select`` for an input that ends after this number of looks."""
    answers = iter([([], [], [])] * looks)
    return lambda *_: next(answers, ([1], [], []))


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose input ends after two looks, on a host with three GPUs."""

    class Driver:
        def __init__(self, _: object) -> None:
            pass

    class Functions:
        def cuInit(self, _: int) -> int:
            return 0

    class Device:
        def __init__(self, _: object) -> None:
            pass

        def uuids(self) -> list[str]:
            return ["GPU-9", *UUIDS]

    monkeypatch.setattr(link_process.select, "select", _ended_after(2))
    monkeypatch.setattr(link_process, "loaded_driver", Functions)
    monkeypatch.setattr(link_process, "Driver", Driver)
    monkeypatch.setattr(link_process, "CudaDevice", Device)
    monkeypatch.setattr(link_process, "find_cupti", lambda: "libcupti.so")


@pytest.mark.usefixtures("two_gpus")
def test_the_process_says_when_it_samples_and_what_it_found(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both devices decode in turn: 0, 1, 0, 1, and once more at the end.
    counted = [[(100, (32.0, 8.0))], [(100, (8.0, 32.0))], [], [], [(50_100, (16.0, 0.0))], []]
    library = Library(counted=counted)
    monkeypatch.setattr(link_process, "Cupti", lambda _: library)
    assert link_process.main([str(INTERVAL_NS), *UUIDS]) == 0
    ready, _, written = capsysbinary.readouterr().out.partition(READY)
    assert ready == b""
    assert decode(written, LinkTrafficRecord, "test") == LinkTrafficRecord(
        interval_ns=INTERVAL_NS,
        devices=(
            DeviceTraffic(
                device="GPU-0",
                from_ns=100,
                to_ns=50_100 + INTERVAL_NS,
                begins_ns=(100, 50_100),
                sent_bytes=(32, 16),
                received_bytes=(8, 0),
            ),
            DeviceTraffic(
                device="GPU-1",
                from_ns=100,
                to_ns=100 + INTERVAL_NS,
                begins_ns=(100,),
                sent_bytes=(8,),
                received_bytes=(32,),
            ),
        ),
    )


@pytest.mark.usefixtures("two_gpus")
def test_what_was_sampled_before_samples_were_lost_is_kept(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(counted=[[(100, (32.0, 8.0))], []])
    monkeypatch.setattr(link_process, "Cupti", lambda _: library)

    def decode_or_fail(fields: Mapping[str, Any]) -> dict[str, Any]:
        if library.called.count("cuptiPmSamplingDecodeData") > 2:
            raise CuptiError("the device has no memory for its counters", 8)
        return Library._cuptiPmSamplingDecodeData(library, fields)

    library._cuptiPmSamplingDecodeData = decode_or_fail  # type: ignore[method-assign]
    monkeypatch.setattr(link_process.select, "select", _ended_after(3))
    assert link_process.main([str(INTERVAL_NS), *UUIDS]) == 0
    record = decode(capsysbinary.readouterr().out.partition(READY)[2], LinkTrafficRecord, "test")
    assert [(one.begins_ns, one.to_ns) for one in record.devices] == [((100,), 100 + INTERVAL_NS), ((), 0)]


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("metrics", [(), (SENT,)])
def test_the_process_says_why_it_did_not_sample(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, metrics: tuple[str, ...]
) -> None:
    monkeypatch.setattr(link_process, "Cupti", lambda _: Library(metrics=metrics))
    assert link_process.main([str(INTERVAL_NS), *UUIDS]) == 0
    record = decode(capsysbinary.readouterr().out, LinkTrafficRecord, "test")
    assert (record.devices, record.not_sampled) == ((), "not all GPUs have counters of NVLink")


def test_without_a_driver_there_is_nothing_to_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_process, "loaded_driver", lambda: None)
    with pytest.raises(KprofError, match="no NVIDIA GPU"):
        link_process.traffic_until_input_ends(INTERVAL_NS, UUIDS)
