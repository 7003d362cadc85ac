"""The public domain: codes, fingerprints, coarsening, cells and range counts."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdp.domain import Attribute, Axis, Domain, View

AGE = Attribute.integer("age", 0, 99, bins=20)
SEX = Attribute.categorical("sex", ["f", "m"])
WEIGHT = Attribute.real("weight", 0, 1, bins=4)
CITY = Attribute.categorical("city", ["a", "b", "c", "d"])
DOMAIN = Domain([AGE, SEX, WEIGHT, CITY])


class TestAttribute:
    def test_integers_have_one_bin_each_by_default(self):
        attribute = Attribute.integer("n", -2, 2)
        assert attribute.size == 5
        assert attribute.encode(np.array([-3, -2, 0, 2, 3])).tolist() == [-1, 0, 2, 4, -1]
        assert attribute.labels == ("-2", "-1", "0", "1", "2")

    def test_integer_bins_are_as_even_as_possible(self):
        attribute = Attribute.integer("n", 1, 10, bins=3)
        assert attribute.labels == ("1-3", "4-6", "7-10")
        assert attribute.encode(np.arange(0, 12)).tolist() == [-1, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, -1]

    def test_integer_edges_include_the_highest(self):
        attribute = Attribute.integer("age", edges=[0, 18, 65, 99])
        assert attribute.labels == ("0-17", "18-64", "65-99")
        assert attribute.encode([17, 18, 64, 65, 99, 100]).tolist() == [0, 1, 1, 2, 2, -1]
        assert (attribute.low, attribute.high) == (0, 99)

    def test_negative_integer_bins_have_readable_labels(self):
        assert Attribute.integer("n", -10, 9, bins=2).labels == ("-10..-1", "0..9")

    def test_wide_integers_use_the_search_and_agree_with_the_definition(self):
        attribute = Attribute.integer("n", edges=[-(10**6), -7, 0, 123_456, 10**9])
        values = np.array([-(10**6) - 1, -(10**6), -8, -7, -1, 0, 123_455, 123_456, 10**9, 10**9 + 1])
        assert attribute.encode(values).tolist() == [-1, 0, 0, 1, 1, 2, 2, 3, 3, -1]

    @pytest.mark.parametrize("outside", ["reject", "clamp"])
    def test_extreme_integers_do_not_wrap_around(self, outside):
        attribute = Attribute.integer("n", 5, 8, outside=outside)
        ends = np.iinfo(np.int64)
        expected = [0, 3] if outside == "clamp" else [-1, -1]
        assert attribute.encode(np.array([ends.min, ends.max])).tolist() == expected
        assert attribute.encode(np.array([0, 2**64 - 1], dtype=np.uint64)).tolist() == expected
        assert attribute.encode(np.array([-1e300, 1e300])).tolist() == expected

    def test_small_unsigned_and_signed_columns_are_read_by_value(self):
        attribute = Attribute.integer("n", -5, 200)
        assert attribute.encode(np.array([0, 200, 255], dtype=np.uint8)).tolist() == [5, 205, -1]
        assert attribute.encode(np.array([-128, -5, 127], dtype=np.int8)).tolist() == [-1, 0, 132]

    @pytest.mark.parametrize("outside", ["reject", "clamp", "drop"])
    def test_what_is_no_integer_is_outside_even_when_clamping(self, outside):
        attribute = Attribute.integer("n", 0, 9, outside=outside)
        assert attribute.encode(np.array([1.0, 1.5, np.nan, 9.0])).tolist() == [1, -1, -1, 9]

    def test_real_bins_are_half_open_but_the_last(self):
        assert WEIGHT.encode([-0.1, 0.0, 0.24, 0.25, 0.75, 1.0, 1.01, float("nan")]).tolist() == [
            *(-1, 0, 0, 1, 3, 3, -1, -1)
        ]
        assert WEIGHT.labels == ("[0.0, 0.25)", "[0.25, 0.5)", "[0.5, 0.75)", "[0.75, 1.0]")

    def test_real_clamp_takes_the_nearest_bin_and_never_nan(self):
        attribute = Attribute.real("x", edges=[0, 1, 10], outside="clamp")
        values = [-np.inf, -5, 0.5, 10, 11, np.inf, np.nan]
        assert attribute.encode(np.array(values)).tolist() == [0, 0, 0, 1, 1, 1, -1]

    def test_real_edges_meet_at_the_decimals_a_person_expects(self):
        assert Attribute.real("x", 0, 1, bins=10).edges[3] == 0.3
        assert Attribute.real("x", 0, 1, bins=10).encode([0.3, 0.6, 0.7]).tolist() == [3, 6, 7]

    @given(
        low=st.floats(-1e6, 1e6),
        width=st.floats(1e-6, 1e9),
        bins=st.integers(1, 300),
        places=st.lists(st.floats(-0.1, 1.1), max_size=20),
        clamp=st.booleans(),
    )
    def test_real_codes_agree_with_the_search_at_and_around_every_edge(self, low, width, bins, places, clamp):
        try:
            attribute = Attribute.real("x", low, low + width, bins=bins, outside="clamp" if clamp else "reject")
        except ValueError:
            return
        edges = np.array(attribute.edges)
        values = np.concatenate(
            [edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf), low + width * np.array(places)]
        )
        expected = np.searchsorted(edges, values, side="right") - 1
        expected[values == edges[-1]] = bins - 1
        expected = np.clip(expected, 0, bins - 1) if clamp else np.where(expected == bins, -1, expected)
        assert attribute.encode(values).tolist() == expected.tolist()

    def test_categories_are_coded_in_order(self):
        assert CITY.encode(["c", "a", "x", None, "d"]).tolist() == [2, 0, -1, -1, 3]
        assert CITY.encode(np.array(["b", "B"])).tolist() == [1, -1]

    def test_a_numeric_attribute_refuses_text(self):
        with pytest.raises(TypeError, match="age"):
            AGE.encode(["12"])

    def test_empty_columns_are_fine(self):
        assert AGE.encode(np.array([], dtype=np.int64)).tolist() == []
        assert WEIGHT.encode(np.array([], dtype=np.float64)).tolist() == []
        assert SEX.encode([]).tolist() == []

    def test_the_input_is_left_alone(self):
        for dtype in (np.int64, np.float64):
            values = np.array([-1, 5, 1000], dtype=dtype)
            before = values.copy()
            AGE.encode(values)
            WEIGHT.encode(values)
            assert (values == before).all()

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Attribute.categorical("c", ["a"], outside="clamp"), "nearest"),
            (lambda: Attribute.categorical("c", []), "at least one value"),
            (lambda: Attribute.categorical("c", ["a", "b", "a"]), "repeated: a"),
            (lambda: Attribute.categorical("c", [1]), "text"),
            (lambda: Attribute("c", "categorical", values=("a",), edges=(0, 1)), "not edges"),
            (lambda: Attribute("n", "integer", values=("a",), edges=(0, 1)), "not values"),
            (lambda: Attribute("", "integer", edges=(0, 1)), "name"),
            (lambda: Attribute("n", "text", edges=(0, 1)), "kind 'text'"),
            (lambda: Attribute("n", "integer", edges=(0, 1), outside="keep"), "outside 'keep'"),
            (lambda: Attribute.integer("n", 5, 4), "above high"),
            (lambda: Attribute.integer("n", 0, 9, bins=11), "between 1 and 10"),
            (lambda: Attribute.integer("n", 0), "needs low and high"),
            (lambda: Attribute.integer("n", 0, 9, edges=[0, 9]), "do not go with"),
            (lambda: Attribute.integer("n", edges=[]), "two edges"),
            (lambda: Attribute.integer("n", edges=[0.5, 3]), "are integers"),
            (lambda: Attribute.integer("n", edges=[0, 5, 3]), "increase"),
            (lambda: Attribute.integer("n", 0, 2**30), "fewer"),
            (lambda: Attribute.integer("n", 0, 2**60, bins=4), "exact"),
            (lambda: Attribute.real("x", 0, 1), "low, high and bins"),
            (lambda: Attribute.real("x", 1, 1, bins=2), "below"),
            (lambda: Attribute.real("x", 0, 1, bins=0), "between 1"),
            (lambda: Attribute.real("x", edges=[0.0, float("inf")]), "finite"),
            (lambda: Attribute.real("x", edges=[0.0]), "two edges"),
        ],
    )
    def test_what_makes_no_sense_is_refused_with_a_reason(self, make, message):
        with pytest.raises(ValueError, match=message):
            make()

    @given(
        edges=st.lists(st.integers(-300, 300), min_size=2, max_size=12, unique=True).map(sorted),
        values=st.lists(st.integers(-400, 400)),
        clamp=st.booleans(),
    )
    def test_integer_codes_agree_with_a_loop(self, edges, values, clamp):
        attribute = Attribute("n", "integer", edges=tuple(edges), outside="clamp" if clamp else "drop")
        expected = []
        for value in values:
            moved = min(max(value, attribute.low), attribute.high) if clamp else value
            expected.append(next((i for i in range(attribute.size) if edges[i] <= moved < edges[i + 1]), -1))
        assert attribute.encode(np.array(values, dtype=np.int64)).tolist() == expected
        assert attribute.encode(np.array(values, dtype=np.float64)).tolist() == expected

    @pytest.mark.parametrize(
        "attribute",
        [
            *(AGE, SEX, WEIGHT, CITY),
            Attribute.integer("n", edges=[0, 18, 65, 99], outside="clamp"),
            Attribute.integer("n", edges=[0, 99, 99]),
            Attribute.real("x", edges=[0, 0.1, 7], outside="drop"),
        ],
    )
    def test_descriptions_survive_json(self, attribute):
        assert Attribute.from_description(json.loads(json.dumps(attribute.describe()))) == attribute

    def test_an_even_attribute_has_a_short_description(self):
        assert len(json.dumps(Attribute.integer("n", 0, 99_999).describe())) < 100


class TestDomain:
    def test_order_sizes_and_types(self):
        assert DOMAIN.names == ("age", "sex", "weight", "city")
        assert DOMAIN.sizes == (20, 2, 4, 4)
        wide = Domain(
            [Attribute.integer("a", 0, 255), Attribute.integer("b", 0, 256), Attribute.integer("c", 0, 65536)]
        )
        assert wide.dtypes == (np.uint8, np.uint16, np.uint32)
        assert DOMAIN.index("weight") == 2
        assert DOMAIN["weight"] is WEIGHT

    def test_unknown_names_are_told_what_there_is(self):
        with pytest.raises(ValueError, match=r"no attribute 'height'.*age, sex, weight, city"):
            DOMAIN.index("height")

    def test_needs_distinct_attributes(self):
        with pytest.raises(ValueError, match="differ"):
            Domain([AGE, AGE])
        with pytest.raises(ValueError, match="at least one"):
            Domain([])

    def test_the_fingerprint_is_pinned(self):
        # Written down: a change would make every stored journal and release look like another domain's.
        assert DOMAIN.fingerprint == "8179f0f2e41a35c3b558be32efa72dd6bf9be21ace45d2c1a5a43bab05c8858b"

    @pytest.mark.parametrize(
        "other",
        [
            Domain([SEX, AGE, WEIGHT, CITY]),
            Domain([Attribute.integer("age", 0, 99, bins=20, outside="drop"), SEX, WEIGHT, CITY]),
            Domain([Attribute.integer("age", 0, 98, bins=20), SEX, WEIGHT, CITY]),
            Domain([AGE, Attribute.categorical("sex", ["m", "f"]), WEIGHT, CITY]),
        ],
    )
    def test_every_change_changes_the_fingerprint(self, other):
        assert other.fingerprint != DOMAIN.fingerprint

    def test_spelling_does_not_change_the_fingerprint(self):
        same = Domain([Attribute.integer("age", edges=[*range(0, 100, 5), 99]), SEX, WEIGHT, CITY])
        assert same.fingerprint == DOMAIN.fingerprint
        assert Domain([Attribute.real("x", 0, 1, bins=2)]) == Domain([Attribute.real("x", edges=[0.0, 0.5, 1.0])])

    def test_description_survives_json(self):
        again = Domain.from_description(json.loads(json.dumps(DOMAIN.describe())))
        assert again == DOMAIN
        assert again.fingerprint == DOMAIN.fingerprint

    def test_a_later_format_is_refused(self):
        with pytest.raises(ValueError, match="format 2"):
            Domain.from_description(DOMAIN.describe() | {"format": 2})


VIEW = View(
    "all",
    DOMAIN,
    [
        Axis.grouped("city", {"west": ["d", "a"], "east": ["b", "c"]}),
        Axis("age", bins=10),
        "sex",
        Axis("weight", edges=(0, 0.5, 1)),
    ],
)


class TestView:
    def test_shape_and_labels(self):
        assert VIEW.shape == (2, 10, 2, 2)
        assert VIEW.cells == 80
        assert VIEW.attributes == ("city", "age", "sex", "weight")
        assert VIEW.axis_labels[0] == ("west", "east")
        assert VIEW.axis_labels[1][2] == "20-29"
        assert VIEW.axis_labels[3] == ("[0.0, 0.5)", "[0.5, 1.0]")

    def test_cells_agree_with_a_loop_over_every_record(self):
        rows = list(product(range(20), range(2), range(4), range(4)))
        columns = [
            np.array(column, dtype=dtype) for column, dtype in zip(zip(*rows, strict=True), DOMAIN.dtypes, strict=True)
        ]
        expected = [
            np.ravel_multi_index(({0: 0, 1: 1, 2: 1, 3: 0}[city], age // 2, sex, weight // 2), VIEW.shape)
            for age, sex, weight, city in rows
        ]
        cells = VIEW.cell_of(columns)
        assert cells.dtype == np.int64
        assert cells.tolist() == expected
        assert VIEW.cell_of(dict(zip(DOMAIN.names, columns, strict=True))).tolist() == expected

    def test_a_code_beyond_the_domain_is_an_error(self):
        with pytest.raises(IndexError):
            View("v", DOMAIN, ["sex"]).cell_of({"sex": np.array([2])})

    def test_uneven_merges_keep_every_bin(self):
        view = View("v", DOMAIN, [Axis("age", bins=3)])
        assert view.axis_labels == (("0-29", "30-64", "65-99"),)

    def test_edges_may_single_out_the_highest_integer(self):
        domain = Domain([Attribute.integer("n", 0, 9)])
        assert View("v", domain, [Axis("n", edges=(0, 5, 9))]).axis_labels == (("0-4", "5-9"),)
        assert View("v", domain, [Axis("n", edges=(0, 5, 9, 9))]).axis_labels == (("0-4", "5-8", "9"),)

    @pytest.mark.parametrize(
        ("axes", "message"),
        [
            ([], "at least one attribute"),
            (["sex", "sex"], "each attribute once"),
            (["height"], "no attribute 'height'"),
            ([Axis("age", bins=21)], "give 1 to 20"),
            ([Axis("age", bins=0)], "give 1 to 20"),
            ([Axis("age", edges=(0, 21, 99))], r"21 \(nearest 20\)"),
            ([Axis("age", edges=(5, 99))], "run from 0 to 99"),
            ([Axis("age", edges=(0, 50))], "run from 0 to 99"),
            ([Axis("age", edges=(0, 50, 20, 99))], "increase"),
            ([Axis("sex", bins=1)], "use groups"),
            ([Axis.grouped("age", {"all": ["0"]})], "use bins or edges"),
            ([Axis.grouped("city", {"x": ["a", "b"]})], "in no group: c, d"),
            ([Axis.grouped("city", {"x": ["a", "b"], "y": ["b", "c", "d"]})], "more than one group: b"),
            ([Axis.grouped("city", {"x": ["a", "b", "c", "d", "e"]})], "not in the domain: e"),
            ([Axis.grouped("city", {"x": ["a", "b", "c", "d"], "y": []})], "at least one value"),
            ([Axis("city", groups=(("x", ("a", "b")), ("x", ("c", "d"))))], "labels must differ"),
        ],
    )
    def test_a_coarsening_that_does_not_fit_is_refused(self, axes, message):
        with pytest.raises(ValueError, match=message):
            View("v", DOMAIN, axes)

    def test_one_coarsening_per_axis(self):
        with pytest.raises(ValueError, match="one of"):
            Axis("age", bins=2, edges=(0, 99))

    def test_range_counts(self):
        counts = np.arange(VIEW.cells)
        table = counts.reshape(VIEW.shape)
        assert VIEW.range_count(counts) == counts.sum()
        assert VIEW.range_count(table, age=(20, 39)) == table[:, 2:4].sum()
        assert VIEW.range_count(counts, city="east", sex=["m"]) == table[1, :, 1].sum()
        assert VIEW.range_count(counts, sex=["f", "m"], city=["west", "east"], age=(90, 99)) == table[:, 9].sum()
        assert VIEW.range_count(counts, weight=(0.5, 1), age=(None, 9)) == table[:, 0, :, 1].sum()
        assert VIEW.range_count(counts, age=["0-9", "20-29"]) == table[:, [0, 2]].sum()
        assert VIEW.range_count(counts, age=("0-9", "20-29")) == table[:, [0, 2]].sum()
        assert isinstance(VIEW.range_count(counts), int)

    @pytest.mark.parametrize(
        ("ranges", "message"),
        [
            ({"age": (21, 39)}, r"nearest that does is \(20, 39\)"),
            ({"age": (20, 40)}, r"nearest that does is \(20, 39\)"),
            ({"age": (0, 1000)}, r"nearest that does is \(0, 99\)"),
            ({"age": (50, 39)}, r"nearest that does is \(50, 59\)"),
            ({"weight": (0.4, 1)}, r"nearest that does is \(0.5, 1.0\)"),
            ({"age": (1, 2, 3)}, "pair"),
            ({"sex": "x"}, "no cell labelled x"),
            ({"height": (0, 1)}, "no attribute 'height'"),
        ],
    )
    def test_a_range_that_cuts_a_cell_is_refused_with_the_nearest(self, ranges, message):
        with pytest.raises(ValueError, match=message):
            VIEW.range_count(np.zeros(VIEW.cells), **ranges)

    def test_counts_of_another_size_are_refused(self):
        with pytest.raises(ValueError):
            VIEW.range_count(np.zeros(81))

    def test_a_subscriber_rebuilds_the_view_from_json(self):
        narrow = View("few", DOMAIN, [Axis("age", bins=10), Axis.grouped("city", {"z": ["a", "d"], "y": ["b", "c"]})])
        again = View.from_description(json.loads(json.dumps(narrow.describe(), sort_keys=True)))
        assert again.domain.names == ("age", "city")
        assert (again.name, again.axes, again.shape, again.axis_labels) == (
            *(narrow.name, narrow.axes, narrow.shape, narrow.axis_labels),
        )
        counts = np.arange(narrow.cells)
        assert again.range_count(counts, age=(0, 49), city="y") == narrow.range_count(counts, age=(0, 49), city="y")
