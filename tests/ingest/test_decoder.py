"""Every row of a decoded batch is what the reference says of its message alone, whatever its neighbours are."""

from __future__ import annotations

import numpy as np
import pytest
from decoder_samples import (
    ALL_SETTINGS,
    BY_KEY,
    CHANGES,
    DOMAIN,
    GOOD,
    GOOD_WITH_NAMES,
    KEY,
    KEYS,
    LATEST,
    NASTY,
    RECORD,
    SLOWLY,
    batch_of,
    check,
    debezium,
    decoder_of,
    expected,
    good,
    outcomes,
    own,
    with_field,
)
from ingest_reference import Settings

from streamdp.ingest import Decoder, Reason


@pytest.mark.parametrize("which", SLOWLY)
def test_every_nasty_value_alone_in_its_batch(which):
    decoder = decoder_of(which)
    for value in NASTY:
        row = (b"anna", value, 77)
        decoded = decoder.decode(batch_of([row]), which.latest)
        assert outcomes(decoded, 1) == [expected(which, *row)], value


@pytest.mark.slow
@pytest.mark.parametrize("which", ALL_SETTINGS)
def test_every_nasty_value_among_good_ones(which):
    fine = (b"bert", good(which), 5)
    for value in NASTY if which is BY_KEY else NASTY[::3]:
        check(which, [fine, (b"anna", value, 77), fine])


@pytest.mark.parametrize("which", ALL_SETTINGS)
def test_all_nasty_values_together(which):
    rng = np.random.default_rng(5)
    for _ in range(3):
        check(which, [(KEYS[rng.integers(len(KEYS))], NASTY[i], 77) for i in rng.permutation(len(NASTY))])


@pytest.mark.parametrize("which", ALL_SETTINGS)
@pytest.mark.parametrize("value", [None, good(BY_KEY), GOOD_WITH_NAMES, CHANGES[9].encode(), CHANGES[12].encode()])
def test_every_key(which, value):
    check(which, [(key, value, 77) for key in KEYS])
    for key in KEYS:
        check(which, [(key, value, 77)])


def test_message_timestamps_serve_where_the_record_has_none():
    rows = [(b"a", value, ts) for value in (None, own(ts="null").encode(), GOOD) for ts in (-1, 0, LATEST, LATEST + 1)]
    check(BY_KEY, rows)
    decoded = decoder_of(BY_KEY).decode(batch_of(rows), LATEST)
    assert decoded.ts.tolist() == [0, LATEST, 0, LATEST, 1000, 1000, 1000, 1000]


def test_a_row_inserted_again_right_after_its_delete_is_not_lost_to_the_null_between():
    """The database deleted at 10 and inserted at 20; the connector read both, and wrote all three messages, at 500."""
    rest = ',"ts_ms":499,"source":{"ts_ms":%d}'
    rows = [
        (b'{"id":7}', debezium('"d"', before='{"id":7}', rest=rest % 10).encode(), 500),
        (b'{"id":7}', None, 500),
        (b'{"id":7}', debezium('"c"', after=RECORD, rest=rest % 20).encode(), 500),
    ]
    decoded = decoder_of(BY_KEY).decode(batch_of(rows), None)
    assert decoded.delete.tolist() == [True, True, False]
    assert decoded.ts.tolist() == [500, 500, 500]
    assert (decoded.user == decoded.user[0]).all()


def test_a_record_at_the_size_limit_and_one_over():
    which = Settings(DOMAIN, max_record_bytes=len(GOOD) + 1)
    check(which, [(b"a", GOOD, 5), (b"ab", GOOD, 5), (b"a" * 5000, None, 5), (b"a", GOOD, 5)])


def test_a_message_too_long_to_be_joined_with_others_is_read_by_itself():
    long = GOOD.replace(b'"x"', b'"x"' + b" " * (9 << 20))
    which = Settings(DOMAIN, max_record_bytes=1 << 30)
    check(which, [(b"a", GOOD, 5), (b"b", long, 5), (b"c", GOOD, 5)])


def test_an_empty_batch():
    decoded = decoder_of(ALL_SETTINGS[3]).decode(batch_of([]), None)
    assert len(decoded) == 0
    assert decoded.user.shape == (0, 2)
    assert decoded.record is not None
    assert decoded.record.shape == (0, 2)


def test_a_batch_that_is_a_slice_of_another():
    rows = [(b"%d" % i, GOOD if i % 3 else NASTY[i], 7) for i in range(60)]
    whole = batch_of(rows)
    decoded = decoder_of(BY_KEY).decode(whole.slice(17, 45), LATEST)
    assert outcomes(decoded, 28) == [expected(BY_KEY, *row) for row in rows[17:45]]


def test_the_number_and_the_text_of_a_user_are_the_same_user():
    rows = [(None, own(record=with_field("who", text)).encode(), 5) for text in ("12", '"12"')]
    which = Settings(DOMAIN, user="who", record_id="id")
    decoded = decoder_of(which).decode(batch_of(rows), None)
    assert (decoded.user[0] == decoded.user[1]).all()


def test_decoding_ahead_gives_the_same_in_the_same_order():
    made = [batch_of([(b"%d" % i, GOOD, i), (b"%d" % i, NASTY[i], i)] * size) for i, size in enumerate((1, 9000, 0, 3))]
    decoder = decoder_of(BY_KEY)
    ahead = list(decoder.decode_ahead(made, LATEST))
    assert [batch for batch, _ in ahead] == made
    for batch, decoded in ahead:
        assert outcomes(decoded, len(batch)) == outcomes(decoder.decode(batch, LATEST), len(batch))
    assert list(decoder.decode_ahead([], LATEST)) == []


def test_rejections_are_counted_by_reason():
    rows = [(b"a", b"{", 1), (b"a", GOOD, 1), (None, GOOD, 1), (b"a", b"[", 1)]
    decoded = decoder_of(BY_KEY).decode(batch_of(rows), None)
    assert decoded.rejected_by_reason() == {Reason.BAD_JSON: 2, Reason.NO_USER: 1}


def test_names_must_not_collide():
    with pytest.raises(ValueError, match="must differ"):
        Decoder(DOMAIN, user="age", digest_key=KEY)
    with pytest.raises(ValueError, match="must differ"):
        Decoder(DOMAIN, user="who", record_id="who", digest_key=KEY)


@pytest.mark.slow
@pytest.mark.parametrize(
    "bad",
    [
        b"{",
        b"{}{}",
        GOOD.replace(b'{"ts":1000', b'{"ts":1000,"ts":2000'),
        b'{"a":"',
        CHANGES[0].encode(),
        b"\xff",
        None,
    ],
    ids=["cut", "two", "duplicate", "open string", "change", "not text", "null"],
)
def test_one_bad_row_in_a_large_batch_leaves_the_others_as_they_were(bad):
    rng = np.random.default_rng(11)
    ages, cities = rng.integers(0, 120, 17_000), rng.integers(0, 4, 17_000)
    rows = []
    for i, (age, city) in enumerate(zip(ages, cities, strict=True)):
        name = DOMAIN["city"].values[city]
        record = f'{{"age":{age},"city":"{name}","height":1.{i:05},"visits":{i % 9},"shop":"{"pqz"[i % 3]}"}}'
        rows.append((b"user-%d" % i, own(ts=str(i), record=record).encode(), 5))
    decoder = decoder_of(BY_KEY)
    before = outcomes(decoder.decode(batch_of(rows), LATEST), len(rows))
    for place in (0, 9000):
        changed = [*rows[:place], (b"user-%d" % place, bad, 5), *rows[place + 1 :]]
        after = outcomes(decoder.decode(batch_of(changed), LATEST), len(rows))
        assert after[place] == expected(BY_KEY, *changed[place])
        assert after[:place] == before[:place]
        assert after[place + 1 :] == before[place + 1 :]
