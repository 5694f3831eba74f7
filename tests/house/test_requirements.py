"""Every requirement of the source documents is named in a test, and the search for them can fail."""

from tests.house import requirements


def test_every_requirement_is_named_in_a_test() -> None:
    missing = requirements.missing(requirements.texts())
    assert [] == missing, f"{len(missing)} requirements are named in no test: {', '.join(missing)}"


def test_no_test_names_a_requirement_that_does_not_exist() -> None:
    assert [] == requirements.unknown(requirements.texts())


def test_there_are_as_many_requirements_as_the_documents_have() -> None:
    numbers = requirements.all_numbers()
    assert 45 + 26 + 23 + 47 + 44 == len(set(numbers)) == len(numbers)
    assert ["R-U-1", "R-O-44"] == [numbers[0], numbers[-1]]


def test_a_number_that_stands_nowhere_is_missing() -> None:
    everything = [f"requirement {number}." for number in requirements.all_numbers()]
    assert [] == requirements.missing(everything)
    assert ["R-A-14"] == requirements.missing([text for text in everything if text != "requirement R-A-14."])
    assert requirements.all_numbers() == requirements.missing([])


def test_a_number_counts_only_as_a_whole() -> None:
    assert {"R-A-14"} == requirements.named(['"""A call (requirements R-A-14)."""'])
    assert set() == requirements.named(["R-A-", "XR-A-1", "R-A-1x", "R-A-1-2", "D-A-1", "r-a-1", "R-A 1"])
    assert "R-A-1" not in requirements.named(["R-A-14, R-U-1"])


def test_a_range_names_all_of_its_members() -> None:
    assert {"R-A-2", "R-A-3", "R-A-4", "R-O-9", "R-O-10"} == requirements.named(["R-A-2..4; R-O-9..10"])
    assert set() == requirements.named(["R-A-4..2"])


def test_a_number_beyond_the_last_is_unknown() -> None:
    assert ["R-A-27", "R-X-1"] == requirements.unknown(["R-A-25..27", "R-X-1", "R-O-44"])


def test_the_search_reads_the_tests_and_their_data_but_not_itself() -> None:
    sources = list(requirements.texts())
    assert any("def test_hostile_content_never_makes_a_control_span" in source for source in sources)
    assert any('"title": "One question, one answer"' in source for source in sources)
    assert not any("def test_the_search_reads_the_tests_and" in source for source in sources)


def test_every_hard_case_has_a_test_that_names_it() -> None:
    assert list(range(1, requirements.HARD_CASES + 1)) == requirements.cases(requirements.texts())


def test_a_hard_case_is_named_by_a_test_or_by_an_output() -> None:
    assert [4, 17] == requirements.cases(["def test_case_4_what_it_is() -> None:", '{"case": 17, "format": "x"}'])
    assert [] == requirements.cases(["case 4", "test_case_5_x", "def test_case_six_() -> None:"])
