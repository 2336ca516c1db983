"""Attacks of a hostile client without an account, and their effect on a healthy producer and consumer."""
