"""The calls of clients, each turned into requests to brokers."""
