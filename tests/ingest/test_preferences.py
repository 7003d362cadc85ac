"""The public table of preferences: every bad entry has a defined answer."""

from __future__ import annotations

from fractions import Fraction

import pytest

from streamdp.errors import ConfigurationError
from streamdp.ingest import Digester
from streamdp.ingest.preferences import PreferenceReader, UnknownPreference
from streamdp.privacy.levels import Level
from streamdp.transport.batch import Blobs

KEY = b"k" * 16
CLASSES = {"strict": Fraction(1, 20), "normal": Fraction(3, 10), "open": Fraction(1)}
LEVELS = [Level("strict", Fraction(1, 20)), Level("0.1", Fraction(1, 10)), Level("normal", Fraction(3, 10))]
LEVELS = [*LEVELS, Level("open", Fraction(1))]
READER = PreferenceReader(LEVELS, CLASSES, KEY, "key")


def levels_of(table, *users: bytes) -> list[int]:
    return table.of(Digester(KEY)(Blobs.from_list(users))).tolist()


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("strict", 0), ("normal", 2), (" open ", 3), ("", 0), (None, 0), ("0.05", 0), ("0.09999", 0), ("0.1", 1),
        ("1/3", 2), ("0.3", 2), ("1", 3), ("7", 3), ("1e3", 3),
    ],
)  # fmt: skip
def test_classes_and_numbers_rounded_down(text, level) -> None:
    assert READER.level_of(text) == level


@pytest.mark.parametrize("text", ["0", "-1", "0.049", "1e-9", "secret", "nan", "inf", "0.1.2", "9" * 5_000])
def test_what_no_level_can_honour_is_a_fault(text) -> None:
    with pytest.raises(UnknownPreference):
        READER.level_of(text)


def test_a_csv_file_of_two_columns_among_others(tmp_path) -> None:
    path = tmp_path / "preferences.csv"
    path.write_text('note,user,preference\nx,anna,open\ny,"ben, junior",0.2\nz,anna,normal\n,nobody,\n')
    table = READER.read_file(path)
    assert levels_of(table, b"anna", b"ben, junior", b"nobody", b"unheard of") == [2, 1, 0, 0]
    assert table.sizes(4) == [1, 1, 1, 0]


def test_a_file_of_json_lines(tmp_path) -> None:
    path = tmp_path / "preferences.jsonl"
    path.write_text('{"user": 17, "preference": 0.30}\n{"user": "b", "preference": "open"}\n{"user": "c"}\n')
    assert levels_of(READER.read_file(path), b"17", b"b", b"c") == [2, 3, 0]


def test_every_faulty_line_is_named(tmp_path) -> None:
    path = tmp_path / "preferences.csv"
    path.write_text("user,preference\na,open\nb,0\nc,lavish\n" + "d,-1\n" * 20)
    with pytest.raises(ConfigurationError) as refused:
        READER.read_file(path)
    lines = str(refused.value).splitlines()
    assert lines[1].startswith("  line 3: zero or below")
    assert lines[2].startswith("  line 4: neither a number nor a class; there are: strict, normal, open")
    assert lines[-1] == "  and 12 more"


@pytest.mark.parametrize(("name", "text"), [("a.csv", "who,what\na,b\n"), ("a.csv", ""), ("a.jsonl", "[]\n")])
def test_a_file_that_is_no_table_is_refused(tmp_path, name, text) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigurationError, match="preferences in"):
        READER.read_file(tmp_path / name)
    with pytest.raises(ConfigurationError, match="cannot read"):
        READER.read_file(tmp_path / "absent.csv")


def test_an_empty_table_is_one(tmp_path) -> None:
    (tmp_path / "a.csv").write_text("user,preference\n")
    assert len(READER.read_file(tmp_path / "a.csv")) == 0


def test_messages_of_a_topic(tmp_path) -> None:
    keys = Blobs.from_list([b"a", b"b", b"c", b"d", b"e", b'{"schema": {}, "payload": "f"}', b"", None, b"g"])
    values = Blobs.from_list([b"open", b'"normal"', b"0.2", b"rubbish", None, b"open", b"open", b"open", b"0"])
    table, faults = READER.read_messages(keys, values)
    assert levels_of(table, b"a", b"b", b"c", b"d", b"e", b'"f"', b"g") == [3, 2, 1, 0, 0, 3, 0]
    assert faults == 2
    assert len(table) == 7


def test_a_message_nested_deeply_counts_as_the_strictest_and_stops_nothing() -> None:
    table, faults = READER.read_messages(Blobs.from_list([b"a", b"b"]), Blobs.from_list([b"[" * 100_000, b"open"]))
    assert levels_of(table, b"a", b"b") == [0, 3] and faults == 1


def test_users_named_by_a_field_are_their_texts() -> None:
    table, _ = PreferenceReader(LEVELS, CLASSES, KEY, "field:id").read_messages(
        Blobs.from_list([b'{"payload": 1}']), Blobs.from_list([b"open"])
    )
    assert levels_of(table, b'{"payload": 1}') == [3]
