"""Companion tables: what a store's other files say, a module each.

    spark.read.format("rocketmq").option("table", "consumequeue").load(STORE)

A module has `DDL`, its schema, and `reader`, which the data source asks for. STORE is as for messages, but must be a folder:
`config`, `consumequeue` and `index` are looked for beside `commitlog`. Several stores are one table, told apart by the
column `store`. A schema given by the user is the projection. A file that is not there is an empty table, a damaged
one an error.
"""
