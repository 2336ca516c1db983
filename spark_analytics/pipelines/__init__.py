"""Queries over stores, one topic per module: DataFrame programs over the data source, without file access of their own.

Each takes `Stores` (or another query's result) and returns lazy DataFrames.
"""
