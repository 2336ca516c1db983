"""Test doubles of the dependencies of the name server's tables."""

from pocketmq.runtime.clock import SystemClock


class Connection:
    """Test double of a broker's or a client's connection."""

    def __init__(self, remote_host="10.0.0.1"):
        self.attachments, self.callbacks, self.is_closed, self.remote_host = {}, [], False, remote_host

    def on_close(self, callback):
        self.callbacks.append(callback)

    def close(self):
        self.is_closed = True
        for callback in self.callbacks:
            callback(self)


class LivenessClock(SystemClock):
    """A clock whose monotonic time is set by the test."""

    now = 1000.0

    def monotonic(self):
        return self.now
