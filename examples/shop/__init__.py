"""The shop of RocketMQ's tutorial: order, stock, coupon, balance, payment and points. README.md explains it."""
