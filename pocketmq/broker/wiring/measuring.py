"""Connects the broker's measurements to the events that they measure."""

import math

from pocketmq.broker.services import Services
from pocketmq.broker.stats.measurements import STEP_S, PutTimes
from pocketmq.runtime.timers import Timer


def measure(services: Services) -> None:
    """Measure puts, syncs and deliveries from now on."""
    measured, store, turn = services.measured, services.store, services.turn
    store.flush_service.synced.subscribe(measured.sync_time.add)
    services.schedule.delivered = measured.level_lateness.add
    services.timer_messages.delivered = measured.timer_lateness.add
    if store.config.is_slave:
        return
    is_sync_flush = store.config.flush_disk_type == "SYNC_FLUSH"
    ha = services.ha if store.config.is_sync_master else None

    def waited_for() -> int | None:
        """Return the end of the log if the records just put wait for a disk sync or a slave, else None."""
        end_offset = store.max_physical_offset
        return end_offset if is_sync_flush or (ha is not None and ha.has_near(end_offset)) else None

    times = PutTimes(measured, turn, waited_for if is_sync_flush or ha is not None else None)
    services.stats.counted = times.turn_ended

    def reached() -> None:
        synced = store.flushed_offset if is_sync_flush else math.inf
        times.reached(min(synced, math.inf if ha is None else ha.acknowledged_offset()))

    services.gate.flushed.subscribe(lambda flushed_offset: reached())
    if ha is not None:
        ha.acknowledged.subscribe(reached)


def samplers(services: Services) -> list[Timer]:
    """Return the timers that take samples."""
    measured, tail = services.measured, services.store.commit_log.tail

    def sample() -> None:
        measured.recent_put_times.sample()
        measured.page_wait_s.sample(tail.longest_wait_s)
        tail.longest_wait_s = 0.0

    return [services.timers.every(STEP_S, sample)]
