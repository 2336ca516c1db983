"""Python clients beside each other: PocketMQ's, the one over Apache's C++ client, and the official gRPC one."""
