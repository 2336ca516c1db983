"""Measurements: PocketMQ beside Apache's broker on the same machine in the same minutes."""
