"""A server that holds the end of a page back, as a slow network does."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Longer than any test waits.
_MOST_SECONDS = 300


class HeldPage:
    """A page whose first part is sent at once.

    Attributes
    ----------
    address : str
        Where it is.
    """

    def __init__(self, first: str, rest: str, address: str) -> None:
        self.address = address
        self._texts = [first.encode(), rest.encode()]
        self._let_go = threading.Event()

    def send_rest(self) -> None:
        """Send what is held back."""
        self._let_go.set()

    def end(self) -> None:
        """Send no more: the file ends here."""
        del self._texts[1:]
        self._let_go.set()

    def sent(self) -> Iterator[bytes]:
        """The page, in the order of time."""
        yield self._texts[0]
        self._let_go.wait(_MOST_SECONDS)
        yield from self._texts[1:]


@contextmanager
def held_page(page: str, at: int) -> Iterator[HeldPage]:
    """Serve a page on the loopback, whose characters from `at` on are held back."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            for part in held.sent():
                self.wfile.write(part)
                self.wfile.flush()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    held = HeldPage(page[:at], page[at:], f"http://127.0.0.1:{server.server_port}/page.html")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield held
    finally:
        held.end()
        server.shutdown()
        thread.join()
        server.server_close()
