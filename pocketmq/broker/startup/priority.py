"""Real-time priority of the event loop's thread (Linux, SCHED_RR).

A thread that mostly sleeps gets the processor soon after it wakes. A busy one waits for the time slices of other processes,
and falls behind for good where its share is less than it needs. With a real-time priority it runs before all ordinary
threads; the kernel reserves a twentieth of the time for those.
"""

import logging
import os
import sys

log = logging.getLogger("runtime")


def run_in_real_time(priority: int) -> bool:
    """Give the calling thread a real-time priority (1 to 99); threads it starts later keep the ordinary one.

    Returns False and logs a warning with the remedy where the system does not grant it.
    """
    if sys.platform != "linux":
        log.warning("realTimePriority=%d has no effect: it is supported on Linux only", priority)
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
    except OSError as error:
        log.warning(
            "realTimePriority=%d is not granted (%s); it needs root, CAP_SYS_NICE (docker run --cap-add=SYS_NICE) or "
            "a `ulimit -r` of at least that number (systemd: LimitRTPRIO); continuing without",
            priority,
            error.strerror,
        )
        return False
    log.info("the event loop runs at real-time priority %d", priority)
    return True
