// A byte pipe into Perfetto's trace processor: RPC requests on stdin, RPC replies on stdout.
//
//     node run.mjs WEB_DIR < requests > replies
//
// WEB_DIR is a built Perfetto UI: the folder with engine_bundle.js and trace_processor*.wasm.
// Requests are TraceProcessorRpcStream protobufs, each behind its length (4 bytes, little-endian), and so are the
// replies, one to each. Any exit status but 0 means that the engine did not start or crashed; stderr then says why.

import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

const STDIN = 0;
const STDOUT = 1;
const STDERR = 2;
const LENGTH_BYTES = 4;

function writeAll(fd, bytes) {
  // A pipe may take only a part of what it is offered.
  for (let done = 0; done < bytes.length; ) {
    done += fs.writeSync(fd, bytes, done);
  }
}

// Start the engine. `onReply` gets its replies as Uint8Arrays; returns the function that takes requests,
// which calls `onReply` before it returns and throws where the engine crashes.
async function startEngine(webDir, onReply) {
  // The engine fetches its wasm with a synchronous XHR; here that becomes a file of WEB_DIR.
  class FileRequest {
    open(_method, url) {
      this.file = path.join(webDir, path.basename(url));
    }

    send() {
      this.response = fs.readFileSync(this.file);
    }
  }

  // The engine logs its progress; in a crash it repeats its last lines in the error.
  const quiet = () => {};
  const scope = { location: { href: "file:///engine_bundle.js" } };
  // As in a web worker. Its Emscripten glue refuses to start where it detects node or a page.
  const globals = {
    self: scope,
    WorkerGlobalScope: class {},
    XMLHttpRequest: FileRequest,
    console: { log: quiet, warn: quiet, error: quiet },
    process: undefined,
    window: undefined,
    document: undefined,
    fetch: undefined,
  };
  // In this realm, without a vm context: it checks our requests with `instanceof Uint8Array`.
  const bundle = path.join(webDir, "engine_bundle.js");
  const run = vm.compileFunction(fs.readFileSync(bundle, "utf8"), Object.keys(globals), { filename: bundle });
  run(...Object.values(globals));

  // The engine expects one end of a MessageChannel. This one is synchronous, which keeps the replies in order.
  const port = { postMessage: onReply };
  scope.onmessage({ data: port });

  // Its RPC buffer is set up in promise callbacks; an immediate runs after all of those.
  await new Promise((resolve) => setImmediate(resolve));
  return (bytes) => port.onmessage({ data: bytes });
}

// So many bytes of stdin; null where it ends before.
function read(size) {
  const bytes = Buffer.alloc(size);
  for (let done = 0; done < size; ) {
    const got = fs.readSync(STDIN, bytes, done, size - done);
    if (got === 0) {
      return null;
    }
    done += got;
  }
  return bytes;
}

async function main(webDir) {
  let replies = [];
  const request = await startEngine(webDir, (reply) => replies.push(Buffer.from(reply)));
  for (let header; (header = read(LENGTH_BYTES)); replies = []) {
    request(read(header.readUInt32LE()));
    const reply = Buffer.concat(replies);
    const length = Buffer.alloc(LENGTH_BYTES);
    length.writeUInt32LE(reply.length);
    writeAll(STDOUT, Buffer.concat([length, reply]));
  }
}

try {
  await main(process.argv[2]);
} catch (error) {
  writeAll(STDERR, Buffer.from(`${error?.stack ?? error}\n`));
  process.exitCode = 1;
}
