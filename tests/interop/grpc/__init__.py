"""Official, unchanged gRPC clients against PocketMQ's gRPC front, and the same cases against Apache's proxy.

`clients` lists the clients, `fronts` the servers, `verdicts` the cases. Each client has a driver for one case (`runs`),
and a test file, which runs all its cases.
"""

import pytest

pytest.register_assert_rewrite(f"{__name__}.verdicts")
