"""Cost of gRPC clients: PocketMQ's broker with its gRPC port, beside Apache's proxy and broker."""
