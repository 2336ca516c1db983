import pytest

from pocketmq.broker.filter.bloom_filter import BloomFilter, bit_mask

# Results of RocketMQ 4.9.4: error percent, subscriptions, text -> bits, positions.
APACHE = [
    (20, 32, "g#T", 112, [90, 68, 28]),
    (1, 1, "g#T", 16, [10, 4, 12, 13, 1, 15, 15]),
    (99, 7, "0123456789abcdef", 8, [3]),
    (10, 128, "GROUP_name#Topic-with-long-name-0123456789", 616, [68, 296, 91, 479]),
    (5, 1000, "é𝟓#x", 6240, [2819, 2781, 3752, 2449, 2411]),
    (50, 64, "", 96, [0]),
]


@pytest.mark.parametrize(("error_percent", "count", "text", "bit_count", "positions"), APACHE)
def test_bit_positions_equal_apache_s(error_percent, count, text, bit_count, positions):
    bloom_filter = BloomFilter(error_percent, count)
    assert (bloom_filter.bit_count, bloom_filter.positions(text)) == (bit_count, positions)


def test_bitmap_begins_with_the_lowest_bit():
    bitmap = BloomFilter(20, 32).bitmap([0, 9, 111, 9])
    assert bitmap == b"\x01\x02" + bytes(11) + b"\x80"
    assert int.from_bytes(bitmap, "little") == bit_mask([111, 9, 0])
