"""ReplicaLag: the time by which a slave lags behind its master's log.

One end of the log is timed at a time: from its turn of the event loop until the slave has acknowledged it. So the cost does
not depend on the number of records, and the lag of a slave that stands still grows from the first record that it lacks.
"""


class ReplicaLag:
    """Times the acknowledgements of one slave. Offsets are physical offsets, times monotonic seconds."""

    def __init__(self) -> None:
        self._end_offset = -1
        """The end that is timed; -1 if none is."""
        self._since_s = 0.0
        self._last_s = 0.0
        """How long the acknowledgement of the last timed end took."""

    def written(self, end_offset: int, acknowledged_offset: int, now_s: float) -> None:
        """Note that the log ends at `end_offset`."""
        if self._end_offset < 0 and end_offset > acknowledged_offset:
            self._end_offset, self._since_s = end_offset, now_s

    def acknowledged(self, offset: int, now_s: float) -> None:
        """Note that the slave has the log up to `offset`."""
        if 0 <= self._end_offset <= offset:
            self._last_s = now_s - self._since_s
            self._end_offset = -1

    def lag_ms(self, end_offset: int, acknowledged_offset: int, now_s: float) -> int:
        """Return 0 if the slave has everything, else how long it takes or has taken to acknowledge."""
        if acknowledged_offset >= end_offset:
            return 0
        waiting_s = now_s - self._since_s if self._end_offset >= 0 else 0.0
        return round(max(waiting_s, self._last_s) * 1000)
