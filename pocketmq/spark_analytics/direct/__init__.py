"""Reads of stores without Spark: Arrow record batches in this process, for DuckDB, Polars, pandas and our own commands."""
