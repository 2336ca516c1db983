"""Balance: money of customers that the shop keeps for them, in cents."""

from examples.shop.reserving import Reserving
from examples.shop.service import start

ACCOUNTS = [("alice", 1, 1_000_000), ("bob", 1, 100_000), ("carol", 1, 1_000)]


if __name__ == "__main__":
    start(lambda: Reserving("balance", ACCOUNTS))
