"""Queries over stores, one subject per module: SQL over the log and the companion tables, without file access of their own.

A query takes `Stores`, some also another query's result. It returns a lazy frame of the engine, or rows as a pyarrow.Table.
"""
