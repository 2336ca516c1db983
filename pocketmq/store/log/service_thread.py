"""ServiceThread: a thread of the store that works in rounds until it is stopped, as Java's class of that name."""

import threading


class ServiceThread:
    """Base class; `_run` is the thread, which waits for `_wake` between two rounds and ends once `_stopping` is set."""

    def __init__(self, name: str) -> None:
        self._wake = threading.Event()
        self._stopping = False
        self._name = name
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its current round."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        raise NotImplementedError
