"""A healthy producer and consumer beside attacks: what a hostile client without an account does to its neighbours."""
