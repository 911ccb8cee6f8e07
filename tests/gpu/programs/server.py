"""A server that answers each request, in a thread of its own, with the sum of what a kernel computed for it.

Its clients are threads of this process. It prints the answers in the order of the requests.
"""

import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from kernels import BLOCK, decay_kernel, launch

CTAS, STEPS, REQUESTS = 32, 200, 24


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        number = int(self.path.strip("/"))
        x = torch.arange(CTAS * BLOCK, device="cuda", dtype=torch.float32) % (number + 2)
        out = torch.empty_like(x)
        with torch.cuda.stream(torch.cuda.Stream()):
            launch(decay_kernel, x, out, STEPS)
            answer = f"{out.double().sum().item():.17g}".encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: object) -> None:
        pass


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    answers = {}

    def ask(number: int) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/{number}", timeout=60) as answer:
            answers[number] = answer.read().decode()

    for first in range(0, REQUESTS, 4):
        clients = [threading.Thread(target=ask, args=(number,)) for number in range(first, first + 4)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    server.shutdown()
    for number in range(REQUESTS):
        print(number, answers[number])


if __name__ == "__main__":
    main()
