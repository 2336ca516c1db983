import pytest

from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.java_hash import java_hash

STORED_MS = 1_700_000_000_000


def test_the_default_levels_are_those_of_rocketmq() -> None:
    levels = DelayLevels()
    assert levels.level_max == 18
    assert (levels.delay_ms(1), levels.delay_ms(5), levels.delay_ms(18)) == (1_000, 60_000, 7_200_000)


def test_units_are_seconds_minutes_hours_and_days() -> None:
    assert DelayLevels("2s 3m 4h 5d").delays_ms == (2_000, 180_000, 14_400_000, 432_000_000)


def test_level_above_the_last_is_clamped_and_below_the_first_is_one_second() -> None:
    levels = DelayLevels("5s 10s")
    assert (levels.clamp(1), levels.clamp(2), levels.clamp(99)) == (1, 2, 2)
    assert levels.delay_ms(99) == 10_000
    assert levels.delay_ms(0) == levels.delay_ms(-3) == 1_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("1s 5x", "level 2 is '5x': its unit must be one of s m h d"),
        ("1s s", "level 2 is 's': expected a whole number before 's'"),
        ("1s -1s", "level 2 is '-1s': expected a whole number before 's'"),
        ("1s ²s", "expected a whole number before 's'"),
        ("99999999999999d", "at most"),
    ],
)
def test_refusal_of_invalid_levels_names_the_key_and_the_entry(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="messageDelayLevel") as refused:
        DelayLevels(text)
    assert said in str(refused.value)


def test_the_tags_code_of_a_waiting_record_is_its_due_time() -> None:
    levels = DelayLevels()
    waiting = {"DELAY": "3", "TAGS": "TagA", "REAL_TOPIC": "T"}
    assert levels.tags_code("SCHEDULE_TOPIC_XXXX", waiting, STORED_MS) == STORED_MS + 10_000
    # The delivered copy still shows DELAY, and is an ordinary message of its topic.
    assert levels.tags_code("T", waiting, STORED_MS) == java_hash("TagA")
    assert levels.tags_code("T", {}, STORED_MS) == 0
    for odd in ("", "0", "-1", "many"):
        assert levels.tags_code("SCHEDULE_TOPIC_XXXX", {"DELAY": odd, "TAGS": "TagA"}, STORED_MS) == java_hash("TagA")
