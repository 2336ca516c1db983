"""Stock: reserves goods for an order. Their worth is the price of one piece, in cents."""

from examples.shop.reserving import Reserving
from examples.shop.service import start

GOODS = [("apple", 50, 10_000), ("book", 2_500, 1_000), ("piano", 500_000, 1)]


if __name__ == "__main__":
    start(lambda: Reserving("stock", GOODS))
