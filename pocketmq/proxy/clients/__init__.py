"""The clients of the front: their sessions, handles and settings, and the brokers behind them."""
