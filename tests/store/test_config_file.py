import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.config_document import SEAL_KEY, check_seal, decode_document, encode_document
from store.config_file import ConfigFile, carry
from store.disk import StoreError
from store.file_disk import FileDisk

OFFSETS_OF_4_9_4 = b'{\n\t"offsetTable":{\n\t\t"T@G":{0:111,1:127\n\t\t},\n\t\t"%RETRY%G@G":{0:0\n\t\t}\n\t}\n}'
OFFSETS_OF_5 = b'{"dataVersion":{"stateVersion":7},"offsetTable":{"T@G":{\n\t0:12,\n\t-1 :13}}}'


def config_file(tmp_path: Path, name: str = "consumerOffset.json") -> ConfigFile:
    return ConfigFile(FileDisk(), str(tmp_path / name))


def test_bare_number_keys_are_read() -> None:
    assert decode_document(OFFSETS_OF_4_9_4) == {"offsetTable": {"T@G": {"0": 111, "1": 127}, "%RETRY%G@G": {"0": 0}}}
    assert decode_document(OFFSETS_OF_5)["offsetTable"] == {"T@G": {"0": 12, "-1": 13}}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(), json_values))
def test_plain_json_means_what_it_meant(document: dict[str, object]) -> None:
    # Texts full of braces, quotes and `1:` must not be taken for bare keys.
    assert decode_document(json.dumps(document).encode()) == document
    assert decode_document(encode_document(document)) == document


@pytest.mark.parametrize("text", ['a{1:2}"', '\\",3:"', "{0:1,2:3}", "\\\\"])
def test_bare_keys_within_strings_stay_as_they_are(text: str) -> None:
    document = {text: [text, {text: text}]}
    assert decode_document(json.dumps(document).encode()) == document


def test_integer_keys_are_written_quoted() -> None:
    assert json.loads(encode_document({"offsetTable": {2: 1}})) == {"offsetTable": {"2": 1}}


@pytest.mark.parametrize("damaged", [None, b"", b"\0" * 50, b'{"offsetTable":{"T@G":{0:', b"[]", b"\xff"])
def test_the_backup_stands_in_for_a_file_that_is_missing_or_damaged(tmp_path: Path, damaged: bytes | None) -> None:
    if damaged is not None:
        (tmp_path / "consumerOffset.json").write_bytes(damaged)
    (tmp_path / "consumerOffset.json.bak").write_bytes(OFFSETS_OF_4_9_4)
    assert config_file(tmp_path).load()["offsetTable"]["T@G"] == {"0": 111, "1": 127}


def test_without_any_file_the_document_is_empty(tmp_path: Path) -> None:
    assert config_file(tmp_path).load() == {}
    (tmp_path / "consumerOffset.json").write_bytes(b"")
    assert config_file(tmp_path).load() == {}


def test_a_table_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_bytes(b"{")
    (tmp_path / "consumerOffset.json.bak").write_bytes(b"]")
    with pytest.raises(StoreError, match=r"consumerOffset\.json.*\.bak.*repair it, or delete it"):
        config_file(tmp_path).load()


def test_a_new_document_replaces_the_old_one_which_stays_as_backup(tmp_path: Path) -> None:
    file = config_file(tmp_path)
    assert file.persist({"offsetTable": {"T@G": {0: 1}}})
    assert file.persist({"offsetTable": {"T@G": {0: 2}}})
    for name, offset in (("consumerOffset.json", 2), ("consumerOffset.json.bak", 1)):
        document = json.loads((tmp_path / name).read_bytes())
        assert check_seal(document) is True
        assert document == {"offsetTable": {"T@G": {"0": offset}}, SEAL_KEY: document[SEAL_KEY]}


def test_an_unchanged_document_is_not_written_again(tmp_path: Path) -> None:
    file = config_file(tmp_path)
    file.persist({"offsetTable": {"T@G": {0: 1, 1: 2}}})
    (tmp_path / "consumerOffset.json").unlink()
    assert not file.persist({"offsetTable": {"T@G": {0: 1, 1: 2}}})
    assert not (tmp_path / "consumerOffset.json").exists()


def test_what_another_version_wrote_is_handed_on(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text(
        '{"dataVersion":{"counter":3,"stateVersion":9,"timestamp":5},"splitTable":{"x":{0:1}},'
        '"topicConfigTable":{"T":{"attributes":{"message.type":"FIFO"},"perm":6},"Gone":{"perm":6}}}'
    )
    file = config_file(tmp_path, "topics.json")
    found = file.load()
    file.persist(
        {
            "dataVersion": carry(found["dataVersion"], {"counter": 4, "timestamp": 6}),
            "topicConfigTable": {"T": carry(found["topicConfigTable"]["T"], {"perm": 4})},
        }
    )
    assert config_file(tmp_path, "topics.json").load() == {
        "dataVersion": {"counter": 4, "stateVersion": 9, "timestamp": 6},
        "splitTable": {"x": {"0": 1}},
        "topicConfigTable": {"T": {"attributes": {"message.type": "FIFO"}, "perm": 4}},
    }
