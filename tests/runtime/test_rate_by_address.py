"""A limit on what peers of one address do."""

from pocketmq.runtime.admission import ADDRESSES_MAX, RateByAddress


class Now:
    """A clock that a test sets."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


def taken(limit: RateByAddress, address: str, times: int) -> list[float]:
    return [limit.take(address) for _ in range(times)]


def test_five_turns_are_taken_at_once_and_then_one_each_interval():
    limit = RateByAddress(5, 5.0, now := Now())
    assert taken(limit, "10.0.0.1", 7) == [0, 0, 0, 0, 0, 5, 5]
    assert limit.take("10.0.0.2") == 0
    now.now_s += 3
    assert limit.take("10.0.0.1") == 2
    now.now_s += 2
    assert taken(limit, "10.0.0.1", 2) == [0, 5]
    now.now_s += 3600
    assert taken(limit, "10.0.0.1", 6) == [0, 0, 0, 0, 0, 5]


def test_turns_that_are_given_back_are_not_limited():
    limit = RateByAddress(5, 5.0, Now())
    for _ in range(20):
        assert limit.take("10.0.0.1") == 0
        limit.give_back("10.0.0.1")


def test_a_network_of_ipv6_is_one_client():
    limit = RateByAddress(5, 5.0, Now())
    assert [limit.take(f"2001:db8::{number}") for number in range(1, 7)] == [0, 0, 0, 0, 0, 5]
    assert limit.take("2001:db8:0:1::1") == 0


def test_only_the_latest_addresses_are_remembered():
    limit = RateByAddress(5, 5.0, Now())
    for number in range(ADDRESSES_MAX + 10):
        limit.take(f"10.0.{number // 256}.{number % 256}")
    assert limit.count == ADDRESSES_MAX


def test_a_turn_that_comes_soon_is_taken():
    limit = RateByAddress(2, 1.0, Now())
    assert [limit.take("10.0.0.1", wait_max_s=2) for _ in range(6)] == [0, 0, 1, 2, 3, 3]
