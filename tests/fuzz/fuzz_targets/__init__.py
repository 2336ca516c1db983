"""What is fuzzed: each module has some targets, `TARGETS` all of them by name."""

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[2]
sys.path += [str(_TESTS / name) for name in ("fuzz", "remoting", "broker", "namesrv", "golden")]
sys.path.append(str(_TESTS.parent))

from fuzz_oracle import Target  # noqa: E402

from fuzz_targets import bodies, broker_requests, namesrv_requests, records, store_files, tables, texts, wire  # noqa: E402

_MODULES = (wire, bodies, texts, records, tables, store_files, broker_requests, namesrv_requests)
TARGETS: dict[str, Target] = {target.name: target for module in _MODULES for target in module.TARGETS}
