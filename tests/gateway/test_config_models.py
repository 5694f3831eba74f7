"""What a model of the configuration takes and which key it has; and that no secret shows anywhere."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from turnscript.convert.registry import load_formats
from turnscript.gateway.config import Config
from turnscript.gateway.configfile import load
from turnscript.gateway.kinds import InvalidConfig

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MAIN = '[models.main]\nbackend = "http://h"\nformat = "rwkv-goose"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the configuration, beside the working folder."""
    place = tmp_path / "etc"
    place.mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return place


def read(folder: Path, text: str, env: dict[str, str] | None = None, **overrides: Any) -> Config:
    """The configuration with that text in its file. Keywords are overrides, with `__` for dots."""
    path = folder / "turnscript.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, env or {}, {key.replace("__", "."): value for key, value in overrides.items()})


# Formats.


def taken(found: Config) -> str | None:
    takes = found.models[0].takes
    return takes.name if takes else None


def test_a_format_may_be_a_file_beside_the_configuration(folder: Path) -> None:
    shutil.copytree(EXAMPLES / "formats", folder / "formats")
    assert "tagged" == taken(read(folder, MAIN.replace("rwkv-goose", "formats/tagged.toml")))
    assert "tagged" == taken(read(folder, MAIN.replace("rwkv-goose", "formats/tagged.toml#tagged")))
    with pytest.raises(InvalidConfig, match="cannot read the format file"):
        read(folder, MAIN, models__main__format="formats/tagged.toml")


def test_a_format_may_stand_in_the_configuration_itself(folder: Path) -> None:
    text = (EXAMPLES / "formats" / "tagged.toml").read_text(encoding="utf-8")
    assert "tagged" == taken(read(folder, text + MAIN.replace("rwkv-goose", "tagged")))
    own = read(folder, '[[format]]\nname = "rwkv-goose"\nbased_on = "rwkv-universal"\n' + MAIN).models[0].takes
    assert own is not None
    assert ts.get_format("rwkv-universal").special_tokens == own.special_tokens


def test_ai00s_section_at_the_top_changes_its_format(folder: Path) -> None:
    section = (EXAMPLES / "formats" / "ai00-config.toml").read_text(encoding="utf-8").split("[model]")[0]
    changed = load_formats(section)[0]
    other = '[models.other]\nbackend = "http://h"\nformat = "rwkv-goose"\n'
    found = read(folder, section + MAIN.replace("rwkv-goose", "ai00-v1") + other)
    assert [changed, ts.get_format("rwkv-goose")] == [model.takes for model in found.models]
    unknown = read(folder, section + '[models.main]\nbackend = "http://h"\n').models[0]
    assert (changed, "[prompts]") == (unknown.takes, unknown.why)
    by_name = read(folder, section + '[models.qwen]\nbackend = "http://h"\n').models[0]
    assert ts.detect("qwen").format == (by_name.takes and by_name.takes.name)


def test_ai00s_section_in_a_model_is_for_it_alone(folder: Path) -> None:
    text = '[models.a]\nbackend = "http://h"\n[models.a.prompts]\nrole_user = "human"\n' + MAIN
    found = read(folder, text, {"TURNSCRIPT_MODELS_A_PROMPTS_ROLE_ASSISTANT": "bot"})
    made = load_formats('[prompts]\nrole_user = "human"\nrole_assistant = "bot"\n')[0]
    assert [made, ts.get_format("rwkv-goose")] == [model.takes for model in found.models]
    assert "[models.a.prompts]" == found.models[0].why


def test_the_name_tells_the_format_where_none_is_set(folder: Path) -> None:
    bare = '[models."qwen2.5-7b"]\nbackend = "http://h"\n'
    assert ts.detect("qwen2.5-7b").format == taken(read(folder, bare))
    upstream = read(folder, bare + 'upstream_model = "llama-3.2-3b"\n')
    assert ts.detect("llama-3.2-3b").format == taken(upstream)
    nothing = read(folder, '[models.main]\nbackend = "http://h"\n').models[0]
    assert nothing.takes is None
    assert "no known format has a clue" in nothing.why


def test_the_date_in_a_name_tells_the_variant_where_none_is_set(folder: Path) -> None:
    """R-G-8, D-G-6: a model older than the words that ask for thinking is not shown them."""
    goose = ts.get_format("rwkv-goose")
    for day, variant, document in (
        ("20250921", "", goose.variant("unhinted").document),
        ("20250922", "", goose.document),
        ("20250921", 'variant = "paren"\n', goose.variant("paren").document),
    ):
        takes = read(folder, f'[models."rwkv7-g1-{day}"]\nbackend = "http://h"\n{variant}').models[0].takes
        assert takes is not None
        assert document == takes.document


def test_the_clues_of_a_format_of_the_configuration_count(folder: Path) -> None:
    clue = '[[format]]\nname = "stripes"\nbased_on = "rwkv-goose"\n'
    clue += 'clue = [{ evidence = "name", pattern = "okapi", reason = "so" }]\n'
    assert "stripes" == taken(read(folder, f'{clue}[models."okapi-7b"]\nbackend = "http://h"\n'))


def test_a_recorded_backend_is_found_beside_the_configuration(folder: Path) -> None:
    (folder / "recorded").mkdir()
    found = read(folder, MAIN.replace("http://h", "replay:recorded")).models[0]
    assert [f"replay:{folder / 'recorded'}"] == [str(address) for address in found.backend]


# Secrets.


def test_keys_of_backends_come_from_the_file_a_variable_or_a_file(folder: Path) -> None:
    (folder / "key").write_text(" of-file \n", encoding="utf-8")
    assert ["direct", "of-variable", "of-file"] == [
        key.reveal()
        for line in ("api_key = 'direct'", "api_key_env = 'K'", "api_key_file = 'key'")
        for key in [read(folder, MAIN + line, {"K": " of-variable\n"}).models[0].key]
        if key
    ]


PLANTED = [
    (MAIN + "api_key = 'planted'", {}),
    (MAIN + "api_key_env = 'K'", {"K": "planted"}),
    (MAIN + "api_key_file = 'key'", {}),
    (MAIN, {"TURNSCRIPT_MODELS_MAIN_API_KEY": "planted"}),
    ("[signing]\nkey_env = 'K'\n" + MAIN, {"K": "planted-planted-planted"}),
]


@pytest.mark.parametrize(("text", "env"), PLANTED, ids=str)
def test_no_secret_shows_anywhere(folder: Path, text: str, env: dict[str, str]) -> None:
    (folder / "key").write_text("planted", encoding="utf-8")
    found = read(folder, text, env)
    assert any(key and "planted" in key.reveal() for key in (found.models[0].key, found.signing.key))
    assert "planted" not in f"{found!r} {found} {found.describe()} {found.notes}"


@pytest.mark.parametrize(
    "text",
    [
        MAIN + 'api_key = "planted\\u0000"',
        MAIN + "api_key = ['planted']",
        MAIN + "api_key = 'planted'\napi_key_env = 'planted'",
        MAIN + "api_key_env = 'planted'",
        MAIN + "api_key_env = 'planted planted'",
        MAIN + "api_key_file = 'planted'",
        MAIN + "api_key_file = 'two'",
        MAIN + "api_key_file = 'odd'",
        MAIN + "api_key_env = 'ODD'",
        MAIN + "api_key = 'plantedé'",
        MAIN + "api_key = 'planted planted'",
        MAIN.replace("http://h", "http://user:planted@h"),
        MAIN.replace("http://h", "https://h/?key=planted"),
        MAIN.replace('"http://h"', '["http://planted@h", "http://h"]'),
        MAIN.replace("rwkv-goose", "sk-planted"),
        MAIN + "variant = 'x'\npreset = 'sk-planted0000'",
        MAIN + "context = 'sk-planted-planted'",
        MAIN + "kind = 'tsk-planted'",
        "[signing]\nkey_env = 'planted'",
        "[server]\nport = 'Bearer planted'",
        "[policy]\nlosses = 'aaaaaaaaaaaaaaaaaaaaaaaaplanted0'",
    ],
)
def test_no_secret_shows_in_an_error(folder: Path, text: str) -> None:
    (folder / "two").write_text("planted planted", encoding="utf-8")
    (folder / "odd").write_bytes(b"planted\xff")
    with pytest.raises(InvalidConfig) as caught:
        read(folder, text, {"ODD": "plantedé"})
    for error in (caught.value, *caught.value.others):
        assert "planted" not in f"{error} {error!r} {error.expected} {error.got} {error.__dict__}"


def test_a_key_in_a_file_that_others_may_read_is_worth_a_word(folder: Path) -> None:
    text = MAIN + "api_key = 'planted'"
    path = folder / "turnscript.toml"
    path.touch()
    path.chmod(0o644)
    assert [f"chmod 600 {path}"] == [note.rpartition(": ")[2] for note in read(folder, text).notes]
    path.chmod(0o600)
    assert () == read(folder, text).notes
    path.chmod(0o644)
    assert () == read(folder, MAIN, {"TURNSCRIPT_MODELS_MAIN_API_KEY": "x"}).notes
