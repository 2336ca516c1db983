"""Error texts about a server contain its address exactly once."""

import pytest

from pocketmq.runtime.error_text import reason_of

ADDRESS = "127.0.0.1:9876"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            TimeoutError(f"no answer from {ADDRESS} to code 105 within 3 s"),
            f"no answer from {ADDRESS} to code 105 within 3 s",
        ),
        (TimeoutError(f"{ADDRESS} accepts no connection"), f"{ADDRESS} accepts no connection"),
        (TimeoutError(), f"{ADDRESS}: no answer in time"),
    ],
)
def test_an_address_is_named_once(error: Exception, said: str) -> None:
    assert reason_of(ADDRESS, error) == said
