"""A server that seems far away: a relay on the loopback that holds every byte for a while.

HTTP and websockets pass as they are. Each direction keeps its order and has its own delay, as on a
line that is long and not narrow.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from types import TracebackType

_CHUNK = 1 << 16


class Relay:
    """Passes what comes in at a free port on to a server, and its answers back.

    Parameters
    ----------
    url : str
        The server, ``http://host:port``.
    delay_s : float
        Seconds that every byte takes, each way.

    Attributes
    ----------
    url : str
        Where to ask instead.
    delay_s : float
        May be changed: what comes from then on takes as long.
    """

    def __init__(self, url: str, delay_s: float) -> None:
        at = urlsplit(url)
        assert at.hostname is not None
        assert at.port is not None
        self._server = at.hostname, at.port
        self.delay_s = delay_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        listening = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self.url = f"http://127.0.0.1:{listening}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> int:
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def _close(self) -> None:
        self._listener.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            there, back = await asyncio.open_connection(*self._server)
            writers.append(back)
            await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
        except (OSError, asyncio.CancelledError):
            # One side is gone, or the relay ends.
            pass
        finally:
            for each in writers:
                each.close()
            for each in writers:
                with suppress(OSError):
                    await each.wait_closed()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Write what is read when it is due; the end of it, too."""
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def write() -> None:
            while True:
                at, data = await due.get()
                await asyncio.sleep(max(0.0, at - self._loop.time()))
                if not data:
                    writer.close()
                    return
                writer.write(data)
                await writer.drain()

        writing = asyncio.create_task(write())
        try:
            data = b" "
            while data:
                try:
                    data = await reader.read(_CHUNK)
                except OSError:
                    data = b""
                await due.put((self._loop.time() + self.delay_s, data))
            with suppress(OSError):
                await writing
        finally:
            writing.cancel()
