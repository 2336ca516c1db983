"""Fuzz targets, in one module per kind of input; `TARGETS` contains all of them by name."""

from tests.fuzz.fuzz_oracle import Target
from tests.fuzz.fuzz_targets import bodies, broker_requests, namesrv_requests, records, store_files, tables, texts, wire

_MODULES = (wire, bodies, texts, records, tables, store_files, broker_requests, namesrv_requests)
TARGETS: dict[str, Target] = {target.name: target for module in _MODULES for target in module.TARGETS}
