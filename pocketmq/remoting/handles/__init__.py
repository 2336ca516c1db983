"""Handles that brokers give to clients, and clients give back."""
