import pytest

from pocketmq.broker.filter.subscription import split_tags, tag_filter
from pocketmq.store.format.java_hash import java_hash


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_subscription_to_all_has_no_filter(expression):
    assert tag_filter(expression) is None


def test_tag_filter_compares_hash_codes_only():
    matches = tag_filter("A || AaAa||  ")
    assert matches is not None
    assert matches(java_hash("A"))
    assert matches(java_hash("BBBB"))  # the same hash code as AaAa
    assert not matches(java_hash("B"))
    assert not matches(0)  # a message without tags


def test_blank_tags_match_nothing():
    matches = tag_filter(" || ")
    assert matches is not None and not matches(java_hash("A"))


def test_expression_of_bars_only_is_refused():
    with pytest.raises(ValueError, match="has no tag"):
        split_tags("||")
