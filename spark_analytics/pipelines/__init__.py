"""Questions that are asked of stores, a module each: DataFrame programs over the data source, which read no file themselves.

Each takes `Stores` (or what another made of them) and returns DataFrames; nothing is computed before somebody collects.
"""
