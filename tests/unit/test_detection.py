"""Owns the unit tests of model detection: the evidence and its rank, the clues of formats, the rule of batuta."""

import json
from pathlib import Path
from time import process_time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests.clues import TABLE, template_of
from tests.modelfiles import folder, header, text
from turnscript.convert.registry import load_formats
from turnscript.core.clues import Clue
from turnscript.core.errors import InvalidInput, UnknownName
from turnscript.detection import Detected, detect, detect_told, evaluate, rules
from turnscript.detection.facts import Facts, dates, facts_of_name, stem

CHATML, LLAMA3, GOOSE_FORMAT = "batuta-chatml", "batuta-llama3", "rwkv-goose"

GOOSE_TEMPLATE = template_of("rwkv-goose")
LLAMA_CPP_TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'user' %}{{ 'User: ' + message.content + '\\n\\n' }}"
    "{% else %}{{ 'Assistant: ' + message.content + '\\n\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
CHATML_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN_TEMPLATE, HERMES_TEMPLATE = template_of("qwen25"), template_of("hermes")
LLAMA3_TEMPLATE = template_of("llama31")
STRANGE_TEMPLATE = (
    "{% for m in messages %}((({{ m.role }}: {{ m.content }})))\n{% endfor %}"
    "{% if add_generation_prompt %}(((assistant: {% endif %}"
)
EMPTY_TEMPLATE = "{% for m in messages %}[INST] <<SYS>>\n{{ system }}\n<</SYS>>\n\n{{ m.contents }} [/INST]{% endfor %}"


def named(name: str, rule: str = "default") -> Detected:
    return evaluate(TABLE, facts_of_name(name), rule)


def known(**facts: object) -> Detected:
    return evaluate(TABLE, Facts(**facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("qwen2.5-coder-7b.gguf", "qwen2.5-coder-7b"),
        ("Meta-Llama-3-8B.apr", "meta-llama-3-8b"),
        ("/models/llama/Custom", "custom"),
        ("models/qwen/", "qwen"),
        ("models/qwen/.", "qwen"),
        ("phi-3.5", "phi-3"),
        (".gguf", ".gguf"),
        ("model.", "model"),
        ("a.tar.gz", "a.tar"),
        ("ÜBER.gguf", "über"),
        ("", ""),
        (".", ""),
        ("/", ""),
        ("models/..", ""),
    ],
)
def test_the_stem_is_the_lower_case_base_name_without_its_last_extension(path: str, expected: str) -> None:
    """R-B-2."""
    assert expected == stem(path)
    assert expected == facts_of_name(Path(path)).stem


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        *((name, CHATML) for name in ("qwen2.5-coder-7b.gguf", "Qwen3-8B-Q4K.apr", "deepseek-coder-v2.gguf")),
        *((name, CHATML) for name in ("yi-34b.gguf", "custom-model.gguf", "qwen2-7b.gguf", "qwen3-1.7b-q4k.apr")),
        *((name, CHATML) for name in ("qwen3-1.7b-q4k.gguf", "mystery-model", "phi-3.5", "gemma-2b")),
        *((name, LLAMA3) for name in ("llama-3.2-3b.gguf", "Meta-Llama-3-8B.apr", "LLAMA-2-7b.gguf")),
    ],
)
def test_batuta_takes_each_golden_name_for_its_template(model: str, expected: str) -> None:
    """R-B-6."""
    assert expected == named(model, "batuta").format


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("deepseek-r1-distill-llama-8b", CHATML),
        ("qwen-llama-merge", CHATML),
        ("yi-llama", CHATML),
        ("yillama", LLAMA3),
        ("codellama-7b.gguf", LLAMA3),
        ("LLAMA-2", LLAMA3),
        ("llama/qwen2.gguf", CHATML),
        ("/srv/llama/model.gguf", CHATML),
        ("/srv/qwen/llama.gguf", LLAMA3),
        ("model.llama", CHATML),
        ("", CHATML),
    ],
)
def test_batuta_tests_chatml_families_first_and_ignores_folders_and_the_extension(model: str, expected: str) -> None:
    """R-B-3, R-B-4, D-B-5."""
    assert expected == named(model, "batuta").format


def by_batuta(model: str) -> str:
    """R-B-2 to R-B-5 as batuta writes them: an if, an else if, an else."""
    name = stem(model)
    if "qwen" in name or "deepseek" in name or "yi-" in name:
        return CHATML
    return LLAMA3 if "llama" in name else CHATML


PIECES = ("qwen", "DeepSeek", "yi", "yi-", "Llama", "LLAMA", "-", ".", "/", "..", "7b", "ẞ", "\n", "x", ".gguf")


@given(st.lists(st.sampled_from(PIECES), max_size=6).map("".join) | st.text(max_size=12))
def test_the_rule_of_batuta_is_the_if_chain_that_batuta_has(model: str) -> None:
    """R-B-3, R-B-4, R-B-5, D-B-4: never its third template, whatever the name."""
    assert by_batuta(model) == named(model, "batuta").format


def test_batuta_goes_by_the_name_alone(tmp_path: Path) -> None:
    """R-B-2: what is in the file does not count, not even if it is no model at all."""
    path = tmp_path / "llama.gguf"
    path.write_bytes(b"not GGUF")
    assert facts_of_name(path) == Facts(stem="llama", names=("llama",))
    assert LLAMA3 == named(str(path), "batuta").format


NAMES = [
    ("rwkv7-g1a-0.4b-20250905-ctx4096.pth", GOOSE_FORMAT, False),
    ("rwkv7-g1a2-1.5b-20251005-ctx4096", GOOSE_FORMAT, True),
    ("rwkv7b-g1b-0.1b-20250822-ctx4096", GOOSE_FORMAT, False),
    ("RWKV-x070-World-0.1B-v2.8-20241210-ctx4096.pth", GOOSE_FORMAT, False),
    ("BlinkDL/rwkv-7-world", GOOSE_FORMAT, None),
    ("RWKV-6-World-3B-20240208-ctx4096.st", GOOSE_FORMAT, False),
    ("my-goose-20260101.gguf", GOOSE_FORMAT, True),
    ("rwkv7-g1-20250922", GOOSE_FORMAT, True),
    ("rwkv7-g1-20250921", GOOSE_FORMAT, False),
    ("rwkv7-ai00-20251001", "ai00-v1", None),
    ("rwkv7-ai00-v0-20251001", "ai00-v0", None),
    ("rwkv7-universal-1.5b", "rwkv-universal", None),
    ("UNIVERSAL.pth", "rwkv-universal", None),
    ("mistral-openchatml-v0.1", "openchatml", None),
    ("Open-ChatML-7b", "openchatml", None),
    ("Qwen/Qwen2.5-7B-Instruct", "qwen25", None),
    ("Qwen/QwQ-32B", "qwen3-thinking", True),
    ("QRWKV6-32B-Instruct", "qwen25", None),
    ("rwkv7-qwen2.5-7b", "qwen25", None),
    ("deepseek-coder-v2.gguf", None, None),
    ("01-ai/Yi-34B-Chat", "qwen25", None),
    ("meta-llama/Llama-3.1-8B-Instruct", "llama31", None),
    ("Meta-Llama-3-8B.apr", "llama31", None),
    ("llama3.gguf", "llama31", None),
    ("Llama 3B", None, None),
    ("open_llama_3b", None, None),
    ("llama-30b", None, None),
    ("Llama-2-7b-chat", None, None),
    ("Hermes-3-Llama-3.1-8B", "hermes", None),
    ("mongoose-7b", None, None),
    ("rwkv-4-raven-7b", None, None),
    ("xyi-7b", None, None),
    ("mistral-7b", None, None),
    ("", None, None),
]


@pytest.mark.parametrize(("model", "expected", "thinking"), NAMES)
def test_a_name_tells_the_format(model: str, expected: str | None, thinking: bool | None) -> None:
    """R-G-8, D-G-6: Goose models dated 20250922 and newer think, older ones do not, without a date it is not known."""
    detected = named(model)
    assert (expected, thinking) == (detected.format, detected.thinking)


GUESSED = [
    *("Qwen4-27B", "Qwen2-7B-Instruct", "QwQ-32B", "QRWKV6-32B-Instruct", "Meta-Llama-3-8B-Instruct", "yi-34b"),
    *("Llama-3.1-Nemotron-70B-Instruct", "RWKV-6-World-3B", "universal.pth"),
]


@pytest.mark.parametrize("name", GUESSED)
def test_a_name_that_models_of_several_formats_have_is_called_a_guess(name: str) -> None:
    assert detect(name).guess
    assert detect_told([name]).guess


@pytest.mark.parametrize(
    "name", ["Qwen3-8B", "Qwen2.5-7B", "DeepSeek-R1", "rwkv7-g1", "MiniMax-M3", "Llama-3.3-70B-Instruct", "gpt-oss-20b"]
)
def test_a_name_whose_models_take_one_format_is_none(name: str) -> None:
    assert (False, True) == (detect(name).guess, detect(name).format is not None)


@pytest.mark.parametrize("name", ["DeepSeek-V2-Lite", "Nemotron-H-8B", "Llama-3.1-Tulu-3-8B", "Kimi-VL-A3B", "phi-2"])
def test_a_name_that_tells_nothing_is_taken_for_no_format(name: str) -> None:
    assert (None, False) == (detect(name).format, detect(name).guess)


def test_what_batuta_does_is_done_only_where_it_is_asked_for() -> None:
    """R-B-3 to R-B-5."""
    for clues in (clues for name, clues in TABLE.items() if name.startswith("batuta")):
        assert {"batuta"} == {clue.rule for clue in clues} or not clues
    assert (CHATML, LLAMA3) == tuple(detect(name, rule="batuta").format for name in ("deepseek-v2", "llama-2"))


TEMPLATES = [
    (GOOSE_TEMPLATE, GOOSE_FORMAT),
    ("rwkv-world", GOOSE_FORMAT),
    ("chatml", "hermes"),
    ("llama3", "llama31"),
    (LLAMA3_TEMPLATE, "llama31"),
    (HERMES_TEMPLATE, "hermes"),
    (template_of("openchatml"), "openchatml"),
    (template_of("rwkv-universal"), "rwkv-universal"),
    (template_of("ai00-v1"), "ai00-v1"),
    (STRANGE_TEMPLATE, None),
]


@pytest.mark.parametrize(("template", "expected"), TEMPLATES)
def test_a_chat_template_tells_the_format(template: str, expected: str | None) -> None:
    assert expected == detect_told([], template).format


@pytest.mark.parametrize("name", ["qwen3-8b", "rwkv7-g1", "gemma-3-4b", "model", "llama-3"])
def test_no_name_overrules_a_template_that_can_be_tried(name: str, tmp_path: Path) -> None:
    """An alias, or the name of a file."""
    path = tmp_path / f"{name}.gguf"
    path.write_bytes(header(text("tokenizer.chat_template", template_of("deepseek"))))
    found = detect(path)
    assert ("deepseek", True, False) == (found.format, found.exact, found.guess)
    assert "deepseek" == detect_told([name], template_of("deepseek")).format


def test_a_name_decides_between_tables_that_read_equally_well(tmp_path: Path) -> None:
    for name, expected in {"qwen2.5-7b": "qwen25", "hermes-3": "hermes", "qwen3-instruct": "qwen3-instruct"}.items():
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(header(text("tokenizer.chat_template", QWEN_TEMPLATE)))
        assert expected == detect(path).format


def test_what_was_tried_is_told(tmp_path: Path) -> None:
    template = tmp_path / "chat_template.jinja"
    template.write_text(QWEN_TEMPLATE + "{% if wish is defined %}{{ wish }}{% endif %}", encoding="utf-8")
    found = detect(template)
    assert (found.asked, True, False) == (found.right, found.exact, found.recurrent)
    assert (found.right or 0) >= 15
    assert "wish" in (found.variables or ())
    assert found.reason.startswith("what its chat template writes is read by the table ")
    template.write_text(STRANGE_TEMPLATE, encoding="utf-8")
    assert (None, True, "template") == (detect(template).format, detect(template).learned, detect(template).evidence)
    assert None is detect("qwen3-8b").asked


def test_a_template_that_is_broken_is_an_error(tmp_path: Path) -> None:
    template = tmp_path / "broken.jinja"
    template.write_text("{% for m in messages %}\n{{ m.content }\n{% endfor %}", encoding="utf-8")
    with pytest.raises(InvalidInput, match="mend the template there") as caught:
        detect(template)
    assert (2, f"{template}, line 2") == (caught.value.line, caught.value.where)
    assert "qwen3" == detect_told(["qwen3-8b"], template.read_text(encoding="utf-8")).format


def test_where_a_template_cannot_be_tried_a_name_is_a_guess(tmp_path: Path) -> None:
    path = tmp_path / "qwen3-8b.gguf"
    path.write_bytes(header(text("tokenizer.chat_template", EMPTY_TEMPLATE)))
    found = detect(path)
    assert ("qwen3", True) == (found.format, found.guess)
    assert "its chat template cannot be tried: this template writes nothing of an answer's text" in found.reason


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("rwkv6", GOOSE_FORMAT),
        ("rwkv7", GOOSE_FORMAT),
        ("rwkv7forcausallm", GOOSE_FORMAT),
        ("rwkv6qwen2", "qwen25"),
        ("arwkv7", "qwen25"),
        ("qwen3moe", "qwen25"),
        ("llama", None),
    ],
)
def test_an_architecture_tells_the_format_where_all_its_models_take_one(
    architecture: str, expected: str | None
) -> None:
    assert expected == known(names=("model",), architectures=(architecture,)).format


def test_a_template_wins_over_a_name_and_a_name_over_an_architecture() -> None:
    names, architectures = ("gemma-3-4b",), ("rwkv7",)
    assert "gemma" == known(names=names, architectures=architectures).format
    assert GOOSE_FORMAT == known(names=("model",), architectures=architectures).format
    assert "hermes" == detect_told(names, HERMES_TEMPLATE).format


@pytest.mark.parametrize("template", ["", " \n"])
def test_an_empty_template_is_none(template: str) -> None:
    assert "qwen3" == known(template=template, names=("qwen3-8b",)).format
    assert "qwen3" == detect_told(["qwen3-8b"], template).format


def test_of_two_clues_that_fit_the_lower_order_decides_then_the_name_of_the_format() -> None:
    def clue(order: int) -> Clue:
        return Clue(evidence="name", pattern="m", order=order, reason="it is so")

    facts = Facts(names=("m",))
    assert "b" == evaluate({"a": (clue(2),), "b": (clue(1),)}, facts).format
    assert "a" == evaluate({"b": (clue(1),), "a": (clue(1),)}, facts).format
    assert "c" == evaluate({"b": (clue(5),), "c": (clue(9), clue(4))}, facts).format


def test_the_reason_quotes_the_evidence() -> None:
    assert "its name has 'qwen3': Qwen3 models take this" == named("Qwen3-8B").reason
    assert "its chat template has 'chatml': what llama.cpp writes" in known(template="chatml").reason
    assert "its architecture has 'rwkv7': " in known(architectures=("rwkv7",)).reason
    assert "its file name has 'yi-': a family that takes ChatML" == named("yi-6b", "batuta").reason
    assert "its file name has no known family" in named("gemma", "batuta").reason
    assert "no known format has a clue for the name 'gemmy-2b'" == named("gemmy-2b.gguf").reason
    expected = "no known format has a clue for the name 'x' or the architecture 'gemma'"
    assert expected == known(names=("x", "y"), architectures=("gemma", "g")).reason
    assert "no known format has a clue for a model without a name" == named("..").reason
    assert f"'{'x' * 57}...'" in named("x" * 61).reason


def test_a_clue_needs_all_of_its_signs_and_none_of_the_others() -> None:
    clue = Clue(evidence="name", pattern="a", also=("b", "c"), unless="x", reason="so it is")
    found = {name: evaluate({"f": (clue,)}, Facts(names=(name,))).format for name in ("abc", "ab", "ac", "bc", "abcx")}
    assert {"abc": "f", "ab": None, "ac": None, "bc": None, "abcx": None} == found


def test_the_last_group_of_a_pattern_is_what_the_reason_quotes() -> None:
    clue = Clue(evidence="name", pattern="m(odel)-(x)?", reason="so it is")
    assert "its name has 'odel': so it is" == evaluate({"f": (clue,)}, Facts(names=("model-",))).reason


@pytest.mark.parametrize("family", ["RWKV-7", "Qwen", "Llama 3"])
def test_the_family_of_the_clue_is_told(family: str) -> None:
    names = {"RWKV-7": "rwkv-x070", "Qwen": "qwen2", "Llama 3": "llama-3"}
    assert family == named(names[family]).family


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rwkv7-g1a-0.4b-20250905-ctx4096", ["20250905"]),
        ("a_20250101b20240229.20261231", ["20250101", "20240229", "20261231"]),
        ("20251301 20250230 20230229 20250100 19991231", []),
        ("120250101 202501011 2025-01-01 251005 ٢٠٢٥٠١٠١", []),
    ],
)
def test_a_date_is_eight_digits_that_are_a_day(name: str, expected: list[str]) -> None:
    """R-G-8."""
    assert expected == list(dates(name))


def test_of_several_dates_the_earliest_counts() -> None:
    """D-G-6: a suffix that an old model does not know would be worse than none."""
    detected = known(names=("rwkv7-tuned-20260101", "rwkv7-g1-20250307"))
    assert ("20250307", False) == (detected.date, detected.thinking)


def test_a_template_that_knows_thoughts_says_that_the_model_thinks() -> None:
    assert True is detect_told([], template_of("qwen3")).thinking
    assert True is detect_told([], f"{CHATML_TEMPLATE}{{% if enable_thinking %}}Think.{{% endif %}}").thinking
    assert None is detect_told([], CHATML_TEMPLATE).thinking


def test_a_model_older_than_the_words_that_ask_for_thinking_takes_the_format_without_them() -> None:
    """R-G-8, D-G-6: a date decides, and there is none in most names."""
    variants = {"rwkv7-g1-20250921": "unhinted", "rwkv7-g1-20250922": None, "rwkv7-g1": None, "qwen-20240101": None}
    for model, variant in variants.items():
        detected = ts.detect(model)
        assert variant == detected.variant
        assert variant is None or variant in ts.get_format(str(detected.format)).variants


# From here on: the public function, on the formats that are registered.


def test_the_format_of_a_model_is_found_by_name_and_by_file(tmp_path: Path) -> None:
    assert "rwkv-universal" == ts.detect("rwkv7-universal-1.5b").format
    path = folder(tmp_path / "m", tokenizer_config={"chat_template": template_of("rwkv-universal")})
    assert "rwkv-universal" == ts.detect(path).format
    assert ts.detect(path) == ts.detect(str(path))


def test_an_empty_name_is_not_the_folder_that_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a variable of the shell that is not set."""
    (tmp_path / "qwen3").mkdir()
    monkeypatch.chdir(tmp_path / "qwen3")
    assert "qwen3" == detect(".").format
    assert Detected(None, "no known format has a clue for a model without a name") == detect("")


def test_every_rule_has_an_answer_of_its_own_formats() -> None:
    assert "default" in rules()
    for rule in rules():
        assert detect("a-name-without-any-family", rule=rule).format in {None, *ts.formats()}


def test_an_unknown_rule_is_told() -> None:
    with pytest.raises(UnknownName, match="unknown detection rule 'defaultt'; did you mean 'default'"):
        detect("m", rule="defaultt")


DEEP = {"pattern": "(" * 5000 + ")" * 5000}
MANY = {"pattern": "a{99999999999999999999}"}


def test_a_clue_with_a_broken_pattern_is_told() -> None:
    for broken in ({"pattern": "("}, {"unless": "["}, {"thinks": "*"}, {"also": ("a", "(?")}, DEEP, MANY):
        fields = {"evidence": "name", "pattern": "m", "reason": "why"} | broken
        with pytest.raises(InvalidInput, match="of a clue is no regular expression: "):
            Clue(**fields)


def test_clues_are_plain_data() -> None:
    """A format that a user writes as data declares its clues in the same words."""
    for clue in (clue for clues in TABLE.values() for clue in clues):
        assert clue == msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(clue))), Clue)


def test_formats_of_ones_own_have_clues_too() -> None:
    """And a format of a registered name has no others."""
    text = (
        '[[format]]\nname = "{}"\nbased_on = "{}"\nclue = [{{ evidence = "name", pattern = "okapi", reason = "so" }}]'
    )
    [own] = load_formats(text.format("stripes", "rwkv-goose"))
    assert ("stripes", None) == (ts.detect("okapi-7b", own=[own]).format, ts.detect("okapi-7b").format)
    assert ts.detect("rwkv7-goose") == ts.detect("rwkv7-goose", own=[own])
    [hidden] = load_formats(text.format("qwen3", "qwen3"))
    assert ("qwen3", "qwen25") == tuple(ts.detect(name, own=[hidden]).format for name in ("okapi", "qwen3-8b"))


# What a server tells.


def test_a_template_of_many_is_read_with_the_name() -> None:
    """A clue may want a name besides: bare ChatML is the template of models of several formats."""
    clue = Clue(evidence="template", pattern="<a>", named="okapi", reason="so it is")
    other = Clue(evidence="template", pattern="<a>", order=200, reason="so are all")
    clues = {"okapi": (clue,), "any": (other,)}
    assert "okapi" == evaluate(clues, Facts(names=("x", "okapi-7b"), template="<a>")).format
    assert "any" == evaluate(clues, Facts(names=("zebra",), template="<a>")).format
    assert "any" == evaluate(clues, Facts(template="<a>")).format


@pytest.mark.parametrize(
    ("names", "template", "expected"),
    [
        (["hermes-3-llama-3.1-8b"], CHATML_TEMPLATE, "hermes"),
        (["rwkv7-universal"], "rwkv-world", "rwkv-universal"),
        (["rwkv7-ai00"], "rwkv-world", "ai00-v1"),
        (["rwkv7-ai00-v0"], "rwkv-world", "ai00-v0"),
        (["rwkv7-g1"], "rwkv-world", GOOSE_FORMAT),
        (["rwkv7-universal"], LLAMA_CPP_TEMPLATE, "rwkv-universal"),
        (["rwkv7-ai00"], LLAMA_CPP_TEMPLATE, "ai00-v1"),
        (["rwkv7-ai00-v0"], LLAMA_CPP_TEMPLATE, "ai00-v0"),
        (["rwkv7-g1"], GOOSE_TEMPLATE, GOOSE_FORMAT),
        (["main", "qwen3-8b"], "", "qwen3"),
        (["main", "", "org/Qwen3-8B"], "", "qwen3"),
        (["qwen3-8b"], LLAMA3_TEMPLATE, "llama31"),
        ([], "", None),
    ],
)
def test_what_a_server_tells_of_its_model_tells_the_format(
    names: list[str], template: str, expected: str | None
) -> None:
    told = detect_told(names, template)
    assert expected == told.format
    assert ("template" if template else "name" if expected else None) == told.evidence


def test_a_template_that_nobody_reads_leaves_it_to_the_names_that_a_server_tells() -> None:
    """And the reason says both."""
    told = detect_told(["rwkv7-g1"], STRANGE_TEMPLATE)
    assert (GOOSE_FORMAT, "name", True) == (told.format, told.evidence, told.guess)
    assert told.reason.endswith(" (its chat template has the markers of no known format)")
    assert (None, True) == (detect_told(["x"], STRANGE_TEMPLATE).format, detect_told(["x"], STRANGE_TEMPLATE).learned)


def test_what_lies_under_the_name_that_a_server_tells_counts_where_it_can_be_read(tmp_path: Path) -> None:
    """As where both run on one machine. A file that is no model is none of the gateway's business."""
    path = folder(tmp_path / "m", tokenizer_config={"chat_template": LLAMA3_TEMPLATE})
    assert ("llama31", "template") == (detect_told([str(path)]).format, detect_told([str(path)]).evidence)
    broken = tmp_path / "qwen3-8b.gguf"
    broken.write_bytes(b"not GGUF")
    assert ("qwen3", "name") == (detect_told([str(broken)]).format, detect_told([str(broken)]).evidence)


def test_formats_of_ones_own_count_for_what_a_server_tells() -> None:
    [own] = load_formats(
        '[[format]]\nname = "stripes"\nbased_on = "qwen3"\n'
        'clue = [{ evidence = "name", pattern = "okapi", reason = "so it is" }]'
    )
    assert ("stripes", None) == (detect_told(["okapi"], own=[own]).format, detect_told(["okapi"]).format)


def test_a_name_of_any_length_is_looked_through_at_once() -> None:
    """A server may tell one of megabytes, and nobody else is served meanwhile."""
    began = process_time()
    assert detect_told(["mistral-small-" * 20_000]).format is None
    assert 1.0 > process_time() - began
