"""The loop's thread before all ordinary ones of the machine.

A thread that sleeps most of the time has the processor soon when it wakes. But one that takes its fair share or more waits
for the time slices of others, some ms each, and where its share is less than it needs it falls behind for good: 5,000 timers
a second, beside two busy loops on two cores, came 2 s late, and 31 ms (p99) at a real-time priority (Linux, SCHED_RR). It
waits for nobody but the kernel then, which keeps a twentieth of the time for the others.
"""

import logging
import os
import sys
from typing import Final

log = logging.getLogger("runtime")

PRIORITY_MAX: Final = 99


def run_in_real_time(priority: int) -> bool:
    """Give the calling thread a real-time priority (1 to 99); threads that it starts later are ordinary ones.

    False, and a warning with what to do, where the system does not grant it.
    """
    if sys.platform != "linux":
        log.warning("realTimePriority=%d has no effect: only Linux has it", priority)
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
    except OSError as error:
        log.warning(
            "realTimePriority=%d is not granted (%s); it takes root, CAP_SYS_NICE (docker run --cap-add=SYS_NICE) or "
            "`ulimit -r` of that (systemd: LimitRTPRIO); going on without",
            priority,
            error.strerror,
        )
        return False
    log.info("the loop runs at real-time priority %d", priority)
    return True
