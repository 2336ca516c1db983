"""Coupons: one of each, worth 5.00 off the price of an order."""

from examples.shop.reserving import Reserving
from examples.shop.service import start

COUPONS = [(f"coupon-{number}", 500, 1) for number in range(1, 201)]


if __name__ == "__main__":
    start(lambda: Reserving("coupon", COUPONS))
