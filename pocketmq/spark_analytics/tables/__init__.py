"""Companion tables: the contents of a store's other files, one table per module.

    spark.read.format("rocketmq").option("table", "consumequeue").load(STORE)

A module has `DDL`, its schema, and `TABLE`, used by the data source and by reads without Spark. STORE is as for messages,
but must be a folder: `config`, `consumequeue` and `index` are expected beside `commitlog`. Several stores form one table,
distinguished by the column `store`. A schema given by the user is the projection. A missing file gives an empty table, a
damaged one an error.
"""
