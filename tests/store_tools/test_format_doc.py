"""docs/format.md matches the declarations and encoders, and its claims about checksums hold."""

import tarfile
from pathlib import Path

import pytest

from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.format import layout
from pocketmq.store.format.key_hash import key_hashes
from pocketmq.store.format.record import BadRecordError, check_record, decode_record, is_blank, physical_offset_of
from pocketmq.store.index.index_file import IndexFile
from pocketmq.store_tools.explain.drawing import parsed
from tests.store_tools import format_doc

GOLDEN = Path(__file__).parents[1] / "golden"
RECORDS = ("record", "record_v2", "golden_record", "filler")


def sample(name: str) -> bytes:
    [(_, _, data)] = format_doc.EXAMPLES[name]()
    return data


def accepted(data: bytes, physical_offset: int) -> bool:
    try:
        return check_record(memoryview(data), 0, physical_offset) == len(data)
    except BadRecordError:
        return False


def test_document_is_up_to_date() -> None:
    text = format_doc.DOCUMENT.read_text()
    assert format_doc.render(text) == text, "run: python -m tests.store_tools.format_doc"


def test_every_field_of_every_declaration_is_described() -> None:
    for name, notes in format_doc.NOTES.items():
        assert [subcon.name for subcon in getattr(layout, name).subcons] == [*notes]
    text = format_doc.DOCUMENT.read_text()
    for name in format_doc.NOTES:
        assert f"<!-- fields {name} -->" in text
    for name in (*format_doc.EXAMPLES, "clean_stop"):
        assert f"<!-- example {name} -->" in text


def test_examples_survive_decoding_and_encoding() -> None:
    for parts in format_doc.EXAMPLES.values():
        for _, declaration, data in parts():
            assert b"".join(field.data for field in parsed(declaration, data)) == data
            assert declaration.build(declaration.parse(data)) == data


@pytest.mark.parametrize("name", RECORDS)
def test_record_examples_are_valid(name: str) -> None:
    data = sample(name)
    assert accepted(data, physical_offset_of(memoryview(data)))


def test_golden_example_is_in_its_store() -> None:
    store, physical_offset = format_doc.GOLDEN_PLACE
    with tarfile.open(GOLDEN / store / "store.tar.gz") as archive:
        file = archive.extractfile("store/commitlog/" + "0" * 20)
        assert file is not None
        file.seek(physical_offset)
        data = sample("golden_record")
        assert file.read(len(data)) == data


@pytest.mark.parametrize("name", ["record", "record_v2", "golden_record"])
def test_exactly_the_fields_documented_as_checked_are_checked(name: str) -> None:
    data = sample(name)
    physical_offset = physical_offset_of(memoryview(data))
    for field in parsed(layout.RECORD, data):
        noticed = set()
        for bit in range(8 * len(field.data)):
            damaged = bytearray(data)
            damaged[field.position + bit // 8] ^= 1 << bit % 8
            noticed.add(not accepted(bytes(damaged), physical_offset))
        expected = {True} if field.name in format_doc.FOUND else {False}
        # Two of its bits determine the sizes of the hosts.
        assert noticed == ({True, False} if field.name == "sys_flag" else expected), field.name


def test_blank_example_is_a_valid_end_of_file() -> None:
    assert is_blank(memoryview(sample("blank") + bytes(304)), 0)


def test_index_file_finds_keys_in_the_index_example(tmp_path: Path) -> None:
    path = tmp_path / "20231114221320025"
    path.write_bytes(b"".join(data for _, _, data in format_doc.EXAMPLES["index"]()))
    file = IndexFile(FileDisk(), str(path), 4, 5)
    for key, physical_offset in (("order-17", 1000), ("order-18", 1157), ("order-21", 1314)):
        [key_hash] = key_hashes([f"TopicTest#{key}"])
        assert file.find(int(key_hash), 8, 0, 1 << 62) == [physical_offset]
    file.close()


def test_unit_examples_match_the_record_examples() -> None:
    [record, blank, hole, address, delayed] = [
        declaration.parse(data) for _, declaration, data in format_doc.EXAMPLES["units"]()
    ]
    stored = decode_record(memoryview(sample("record")))
    assert (record.physical_offset, record.size) == (stored.physical_offset, stored.total_size)
    assert b"TAGS\x01paid" in stored.properties
    assert (hole.physical_offset, hole.size) == (physical_offset_of(memoryview(sample("filler"))), len(sample("filler")))
    assert blank.physical_offset == 0 and address.tags_code < -(2**31) and delayed.tags_code > stored.store_timestamp_ms
