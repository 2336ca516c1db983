"""Deduplication of the timer-log units of a slot: each message counts once, in any order of units."""

import random

import numpy as np
import pytest

from pocketmq.broker.delay.wheel_loader import OffsetDedup


@pytest.mark.parametrize("seed", range(20))
def test_only_the_first_unit_of_a_message_is_new(seed: int) -> None:
    rng = random.Random(seed)
    seen, known = OffsetDedup(), set[int]()
    for _ in range(40):
        part = [rng.randrange(10, 400) for _ in range(rng.randrange(12))]
        if rng.random() < 0.5:
            part.sort()
        expected = [number not in known and number not in part[:at] for at, number in enumerate(part)]
        assert seen.add(np.array(part, np.int64)).tolist() == expected
        known.update(part)
    seen.clear()
    assert seen.add(np.array([10, 11], np.int64)).all()
