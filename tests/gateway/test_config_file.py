"""The file, the environment and the command line, one over the other; and every fault with its place."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnscript.gateway.config import Config, Model
from turnscript.gateway.configfile import load, load_setting
from turnscript.gateway.kinds import InvalidConfig
from turnscript.gateway.layers import kind_at, leaves_of, variable

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MAIN = '[models.main]\nbackend = "http://h"\nformat = "rwkv-goose"\n'

# What stands in the file, the key that the error names, and words of its message.
FAULTS = [
    ("[server]\nprot = 1", "server.prot", "unknown setting 'prot'; did you mean 'port'?"),
    ("[sever]\nport = 1", "sever", "did you mean 'server'?"),
    ("port = 1", "port", "unknown setting 'port'"),
    ("server = 5", "server", "expected a table, found the integer 5"),
    ("[[server]]\nport = 1", "server", "expected a table, found an array"),
    ("[server]\nport = '8400'", "server.port", "expected an integer from 0 to 65535, found the string '8400'"),
    ("[server]\nport = 65536", "server.port", "found the integer 65536"),
    ("[server]\nport = -1", "server.port", "found the integer -1"),
    ("[server]\nport = true", "server.port", "found true"),
    ("[server]\nport = 1.5", "server.port", "found the float 1.5"),
    ("[server]\npublic = 'yes'", "server.public", "expected true or false, found the string 'yes'"),
    ("[server]\npublic = 1", "server.public", "expected true or false, found the integer 1"),
    ("[server]\nhost = ''", "server.host", "this is empty"),
    ("[server]\npublic = true\nhost = '[ ]'", "server.host", "this is empty"),
    ("[server]\nkeys = 3", "server.keys", "expected a path, found the integer 3"),
    ("[server]\nkeys = ':memory:'\nport = 'x'", "server.port", "expected an integer"),
    ("[server]\nmax_body = '64 QB'", "server.max_body", "expected a size such as"),
    ("[server]\nmax_body = 0", "server.max_body", "expected a size such as"),
    ("[server]\nmax_body = '-1 MB'", "server.max_body", "expected a size such as"),
    ("[server]\nmax_body = '9999999999 GB'", "server.max_body", "expected a size such as"),
    ("[server]\nmax_body = inf", "server.max_body", "found the float inf"),
    ("[server]\nmax_body = nan", "server.max_body", "found the float nan"),
    ("[server]\nmax_body = true", "server.max_body", "expected a size such as"),
    ("[server]\nkeepalive = 'soon'", "server.keepalive", "expected a time such as"),
    ("[server]\nkeepalive = []", "server.keepalive", "found an array"),
    ("[server]\nkeepalive = 2020-01-01", "server.keepalive", "found a date or time"),
    ("[limits]\nwait = 0", "limits.wait", "expected a time such as"),
    ("[limits]\nrunning = 1e3", "limits.running", "0 for no limit, found the float 1000.0"),
    ("[limits]\nrunning = 99999999999999999999", "limits.running", "found the integer"),
    ("[policy]\nlosses = 'warn'", "policy.losses", 'expected "ignore", "report" or "error", found the string \'warn\''),
    ("[policy]\nlosses = ['error']", "policy.losses", "found an array"),
    ("[limits]\nchoices = 129", "limits.choices", "from 1 to 128"),
    ("[memory]\npath = ''", "memory.path", 'expected a path, or ":memory:"'),
    ("[signing]\nkey_env = 'NOT_SET'", "signing.key_env", "the environment variable that this names is not set"),
    ("[signing]\nkey_env = 'SET'\nfile = 'x'", "signing.key_env", "give one of file and key_env"),
    ("[logs]\nlevel = 'loud'", "logs.level", '"warning" or "error"'),
    ("[server]\ndefault_model = 'mainn'\n" + MAIN, "server.default_model", "called so; the models are main"),
    ("models = 3", "models", "expected tables such as [models.main], found the integer 3"),
    ("[models]\nmain = 'http://h'", "models.main", "expected a table"),
    ("[models.'']\nbackend = 'http://h'", 'models.""', "a model needs a name"),
    ('[models."a\\nb"]\nbackend = "http://h"', 'models."a\\u000ab"', "a model needs a name"),
    ("[models.main]\nformat = 'rwkv-goose'", "models.main.backend", "this model has no backend"),
    ("[models.main]\nbackend = []", "models.main.backend", 'expected a URL, "embedded:FILE"'),
    ("[models.main]\nbackend = 5", "models.main.backend", "or an array of these"),
    ("[models.main]\nbackend = 'my/Model.GGUF'", "models.main.backend", "a model file needs `embedded:` before"),
    ("[models.main]\nbackend = 'h:80'", "models.main.backend", "a URL begins with http://"),
    ("[models.main]\nbackend = 'embedded:no.gguf'", "models.main.backend", "there is no file or folder"),
    ("[models.main]\nbackend = 'replay:none'", "models.main.backend", "there is no file or folder"),
    ("[models.main]\nbackend = 'embedded:bad.gguf'", "models.main.backend", "not a GGUF file"),
    (MAIN + "kind = 'lamacpp'", "models.main.kind", "did you mean 'llamacpp'?"),
    (MAIN + "kind = 1", "models.main.kind", 'expected "auto" or the name of a backend'),
    (MAIN.replace("goose", "gose"), "models.main.format", "did you mean 'rwkv-goose'"),
    (MAIN.replace("rwkv-goose", "none.toml"), "models.main.format", "cannot read the format file"),
    (MAIN.replace("rwkv-goose", "faulty.toml"), "models.main.format", "declares no format"),
    (MAIN + "variant = 'no-such'", "models.main.variant", "unknown variant of rwkv-goose 'no-such'"),
    (MAIN + "fill_order = 'psm'", "models.main.fill_order", "unknown fill order 'psm'; known: rwkv"),
    (
        MAIN.replace("rwkv-goose", "openchatml") + "fill_order = 'spec'",
        "models.main.fill_order",
        "orders that end in the middle: 'psm', 'spm', 'rwkv'",
    ),
    (MAIN.replace("rwkv-goose", "ai00-v1") + "fill_order = 'psm'", "models.main.fill_order", "leave `fill_order` out"),
    (MAIN + "extra = 'x'", "models.main.extra", "expected a table of members, found the string 'x'"),
    (MAIN + "drop = 'seed'", "models.main.drop", "expected an array of members"),
    (MAIN + "also = ['top_kk']", "models.main.also", "did you mean 'top_k' or 'top_p'?"),
    (MAIN + "preset = 'maths'", "models.main.preset", "did you mean 'math'"),
    (MAIN + "thinking = true", "models.main.thinking", 'expected "auto", "on" or "off", found true'),
    (MAIN + "aliases = 'claude-*'", "models.main.aliases", "expected an array of names or patterns"),
    (MAIN + "aliases = ['']", "models.main.aliases", "expected an array of names or patterns"),
    (MAIN + "sampling = 'math'", "models.main.sampling", "expected a table, found the string 'math'"),
    (MAIN + "sampling.temperaturee = 1", "models.main.sampling.temperaturee", "did you mean 'temperature'?"),
    (MAIN + "sampling.top_p = 1.1", "models.main.sampling.top_p", "a number from 0 to 1, found the float 1.1"),
    (MAIN + "sampling.top_p = nan", "models.main.sampling.top_p", "found the float nan"),
    (MAIN + "timeouts.total = 0", "models.main.timeouts.total", "expected a time such as"),
    (MAIN + "context = 0", "models.main.context", "an integer of at least 1"),
    (MAIN + "max_tokens = 9\nmax_tokens_limit = 8", "models.main.max_tokens", "more than max_tokens_limit, which is 8"),
    (MAIN + "max_tokens = 9\ncontext = 9", "models.main.max_tokens", "leaves no room for a prompt"),
    (MAIN + "api_key_env = 'NOT_SET'", "models.main.api_key_env", "is not set"),
    (MAIN + "api_key_env = 'a b'", "models.main.api_key_env", "not the secret itself"),
    (MAIN + "api_key_file = 'none'", "models.main.api_key_file", "no such file"),
    (MAIN + "api_key_file = 'empty'", "models.main.api_key_file", "must hold one key"),
    (MAIN + "api_key = ''", "models.main.api_key", "this is empty"),
    (MAIN + "api_key = 'a'\napi_key_env = 'SET'", "models.main.api_key_env", "give one of api_key and api_key_env"),
    (MAIN + "prompts = { role_user = 'x' }", "models.main.prompts", "give one of format and prompts"),
    ("[models.a]\nbackend = 'http://h'\nprompts.role_usr = 1", "models.a.prompts.role_usr", "did you mean 'role_user'"),
    ("[models.a]\nbackend = 'http://h'\nprompts = 3", "models.a.prompts", "expected a table as ai00 has it"),
    ("[prompts]\nrole_user = 1", "prompts.role_user", "expected a string"),
    ("prompts = 1", "prompts", "expected a table"),
    ("[[format]]\nname = 'x'\nbased_on = 'none'", "format[0].based_on", "unknown format"),
    ("format = 'rwkv-goose'", "format", "expected an array of tables"),
    ('[models.a]\nbackend="http://h"\naliases=["x"]\n[models.b]\nbackend="http://h"\naliases=["x"]',
     "models.b.aliases", "'x' already means the model 'a'"),
    ('[models.a]\nbackend="http://h"\naliases=["Claude-*"]\n[models.b]\nbackend="http://h"\naliases=["claude-*"]',
     "models.b.aliases", "'claude-*' already means the model 'a'"),
    ('[models.a]\nbackend="http://h"\naliases=["b"]\n[models.b]\nbackend="http://h"',
     "models.a.aliases", "'b' already means the model 'b'"),
    (f"[memory]\nsize = 0x{'f' * 5000}", "memory.size", "an integer of 20000 bits"),
    ("[server]\nhost = '0.0.0.0'", "server.host", "lets everybody who reaches this machine use the models"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with odd files in it, beside the working folder."""
    place = tmp_path / "etc"
    place.mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    (place / "bad.gguf").write_bytes(b"nothing")
    (place / "faulty.toml").write_text("[other]\n", encoding="utf-8")
    (place / "empty").write_text("\n", encoding="utf-8")
    return place


def read(folder: Path, text: str, env: dict[str, str] | None = None, **overrides: Any) -> Config:
    """The configuration with that text in its file. Keywords are overrides, with `__` for dots."""
    path = folder / "turnscript.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, env or {}, {key.replace("__", "."): value for key, value in overrides.items()})


@pytest.mark.parametrize(("text", "path", "words"), FAULTS, ids=lambda value: value[:40])
def test_a_fault_is_told_with_its_key_and_file(folder: Path, text: str, path: str, words: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read(folder, text, {"SET": "x"})
    assert path == caught.value.path
    assert words in caught.value.message
    assert caught.value.message.endswith(f"(in {folder / 'turnscript.toml'})")
    assert () == caught.value.others
    assert 400 == caught.value.status


def test_all_faults_are_told_at_once(folder: Path) -> None:
    faults = '[server]\nprot = 1\n[logs]\nlevel = 2\n[models.main]\nbackend = "h"\nformat = "x"\ncontext = 0\n'
    with pytest.raises(InvalidConfig) as caught:
        read(folder, faults)
    found = [caught.value.path, *(other.path for other in caught.value.others)]
    expected = ["server.prot", "logs.level", *(f"models.main.{key}" for key in ("backend", "context", "format"))]
    assert sorted(expected) == sorted(found)


@pytest.mark.parametrize(
    ("data", "place", "words"),
    [
        (b"[server\n", ":1:8", "not valid TOML"),
        (b"[server]\nport = 1\nport = 2\n", ":3", "not valid TOML"),
        (b"a = \xff", "", "not UTF-8"),
        (b"[" * 50_000, ":1", "not valid TOML"),
        (b"[server]\nport = " + b"8" * 5000, ":2:8", "more digits than can be read"),
    ],
)
def test_a_file_that_is_no_toml_is_told_with_line_and_column(folder: Path, data: bytes, place: str, words: str) -> None:
    path = folder / "turnscript.toml"
    path.write_bytes(data)
    with pytest.raises(InvalidConfig) as caught:
        load(path, {})
    assert caught.value.path.startswith(f"{path}{place}")
    assert words in caught.value.message


def test_a_file_that_is_not_there_or_is_a_folder_is_told(folder: Path) -> None:
    for path, words in ((folder / "none.toml", "no such file"), (folder, "is a directory")):
        with pytest.raises(InvalidConfig, match=words) as caught:
            load(path, {})
        assert str(path) == caught.value.path


def test_an_empty_file_is_the_defaults_and_so_is_none(folder: Path) -> None:
    assert Config() == read(folder, "") == load(None, {})
    assert Config() == read(folder, "\ufeff# nothing but a comment\n")


def test_what_is_kept_lies_where_the_system_wants_it() -> None:
    of_home, of_state = load(None, {"HOME": "/h"}), load(None, {"HOME": "/h", "XDG_STATE_HOME": "/s"})
    assert Path("/h/.local/state/turnscript/memory.db") == of_home.memory.path
    assert Path("/s/turnscript/store.db") == of_state.store.path
    assert Path("/s/turnscript/signing.key") == of_state.signing.file
    assert load(None, {"XDG_STATE_HOME": "relative"}).memory.path is None
    nowhere = {"memory.path": ":memory:", "store.path": ":memory:", "signing.file": ":memory:"}
    without = load(None, {"HOME": "/h"}, nowhere)
    assert [None, None, None] == [without.memory.path, without.store.path, without.signing.file]


def test_relative_paths_start_at_the_file_and_at_the_working_folder(folder: Path) -> None:
    found = read(folder, '[server]\nkeys = "a"\n[memory]\npath = "~/m"\n', {"TURNSCRIPT_STORE_PATH": "b"})
    assert (folder / "a", Path.home() / "m", Path.cwd() / "b") == (
        found.server.keys,
        found.memory.path,
        found.store.path,
    )
    assert Path.cwd() / "c" == read(folder, '[server]\nkeys = "a"', server__keys="c").server.keys


def test_the_command_line_goes_before_the_environment_before_the_file(folder: Path) -> None:
    text = "[server]\nport = 1\nkeepalive = 1\nmax_body = 1\n"
    env = {"TURNSCRIPT_SERVER_PORT": "2", "TURNSCRIPT_SERVER_KEEPALIVE": "2 s", "TURNSCRIPT_SERVER_MAX_BODY": ""}
    found = read(folder, text, env, server__port="3")
    assert (3, 2.0, 1) == (found.server.port, found.server.keepalive, found.server.max_body)
    where = {setting.path: setting.where for setting in found.describe()}
    assert "the command line" == where["server.port"]
    assert "TURNSCRIPT_SERVER_KEEPALIVE" == where["server.keepalive"]
    assert str(folder / "turnscript.toml") == where["server.max_body"]
    assert "default" == where["server.host"]


def test_a_backend_of_the_command_line_leaves_out_the_models_of_the_file(folder: Path) -> None:
    text = '[policy]\nlosses = "error"\n[models.main]\nbackend = "http://m"\n[models.default]\napi_key = "k"\n'
    env = {"TURNSCRIPT_MODELS_DEFAULT_CONTEXT": "9"}
    found = read(folder, text, env, models__default__backend="http://h")
    assert [("default", None, 9)] == [(model.name, model.key, model.context) for model in found.models]
    assert "error" == found.policy.losses
    (note,) = found.notes
    assert f"the models in {folder / 'turnscript.toml'} are left out" in note
    assert () == read(folder, "[limits]\nqueue = 1\n", models__default__backend="http://h").notes


@pytest.mark.parametrize(
    ("env", "overrides", "source"),
    [
        ({}, {"models__new__format": "rwkv-goose"}, "the command line"),
        ({"TURNSCRIPT_MODELS_NEW_CONTEXT": "9"}, {}, "TURNSCRIPT_MODELS_NEW_CONTEXT"),
    ],
)
def test_what_is_missing_in_a_table_that_the_file_does_not_have_is_not_told_of_the_file(
    folder: Path, env: dict[str, str], overrides: dict[str, Any], source: str
) -> None:
    with pytest.raises(InvalidConfig, match="has no backend") as caught:
        read(folder, '[models.main]\nbackend = "http://m"\n', env, **overrides)
    assert ("models.new.backend", source) == (caught.value.path, caught.value.source)


def test_an_override_that_is_none_is_none(folder: Path) -> None:
    assert 5 == read(folder, "[server]\nport = 5", server__port=None).server.port


@pytest.mark.parametrize("key", ["server.prot", "server", "models.main", "nothing", "models.main.prompts.role_x"])
def test_an_override_of_what_is_no_setting_is_told(key: str) -> None:
    with pytest.raises(InvalidConfig, match="unknown setting"):
        load(None, {}, {key: "1"})


@pytest.mark.parametrize("key", ["", "a b", "a..b", "a = 1", "a\nb", "server.port = 0 #"])
def test_an_override_whose_key_is_none_is_told(key: str) -> None:
    with pytest.raises(InvalidConfig, match="no key of a setting"):
        load(None, {}, {key: "1"})


def test_a_table_cannot_be_set_where_the_file_has_something_else(folder: Path) -> None:
    with pytest.raises(InvalidConfig, match="expected a table") as caught:
        read(folder, "server = 5", {"TURNSCRIPT_SERVER_PORT": "1"})
    assert "server" == caught.value.path


def test_every_setting_has_a_variable_of_its_own() -> None:
    names = [variable(path) for path, _ in leaves_of(Config)]
    names += [variable(("models", "x", *path)) for path, _ in leaves_of(Model)]
    assert len(names) == len(set(names))
    assert "TURNSCRIPT_MODELS_X_TIMEOUTS_FIRST_BYTE" in names


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("SERVER_HOST", " [::1] ", lambda found: found.server.host == "::1"),
        ("SERVER_PUBLIC", "yes", lambda found: found.server.public is True),
        ("SERVER_PUBLIC", " False ", lambda found: found.server.public is False),
        ("LIMITS_RUNNING", "0", lambda found: found.limits.running is None),
        ("LIMITS_RUNNING", " 7 ", lambda found: found.limits.running == 7),
        ("SERVER_MAX_BODY", "1 KiB", lambda found: found.server.max_body == 1024),
        ("SERVER_MAX_BODY", "1.5 kB", lambda found: found.server.max_body == 1500),
        ("SERVER_KEEPALIVE", "1500ms", lambda found: found.server.keepalive == 1.5),
        ("STORE_TTL", "0", lambda found: found.store.ttl is None),
        ("STORE_TTL", "2 d", lambda found: found.store.ttl == 172_800),
        ("POLICY_LOSSES", "error", lambda found: found.policy.losses == "error"),
        ("MODELS_M_ALIASES", "a*, b", lambda found: found.models[0].aliases == ("a*", "b")),
        ("MODELS_M_ALIASES", '["a,b", "c"]', lambda found: found.models[0].aliases == ("a,b", "c")),
        ("MODELS_M_SAMPLING_TOP_P", "0.5", lambda found: found.models[0].sampling.top_p == 0.5),
        ("MODELS_M_SAMPLING_TOP_K", "5", lambda found: found.models[0].sampling.top_k == 5),
        ("MODELS_M_TIMEOUTS_FIRST_BYTE", "5", lambda found: found.models[0].timeouts.first_byte == 5),
        ("MODELS_M_EXTRA", '{a = false, b = "c"}', lambda found: found.models[0].extra == {"a": False, "b": "c"}),
        ("MODELS_M_DROP", "seed, user", lambda found: found.models[0].drop == ("seed", "user")),
        ("MODELS_M_API_KEY", "12345", lambda found: found.models[0].key.reveal() == "12345"),
        ("MODELS_M_UPSTREAM_MODEL", "true", lambda found: found.models[0].upstream_model == "true"),
        ("MODELS_M_MAX_TOKENS", "5", lambda found: found.models[0].max_tokens == 5),
        ("MODELS_M_MAX_TOKENS_LIMIT", "5", lambda found: found.models[0].max_tokens_limit == 5),
        ("MODELS_M_FIRST_TOKEN", "<s>", lambda found: found.models[0].takes.document.start == "<s>"),
        ("MODELS_M_BACKEND", "http://a, http://b", lambda found: [str(one) for one in found.models[0].backend][1]),
    ],
)  # fmt: skip
def test_a_variable_is_read_as_its_setting_wants(name: str, text: str, expected: Any) -> None:
    env = {
        "TURNSCRIPT_MODELS_M_BACKEND": "http://h",
        "TURNSCRIPT_MODELS_M_FORMAT": "rwkv-goose",
        f"TURNSCRIPT_{name}": text,
    }
    assert expected(load(None, env))


@pytest.mark.parametrize(
    ("name", "text", "path", "words"),
    [
        ("TURNSCRIPT_SERVER_PORT", "84oo", "server.port", "found the string '84oo' (in TURNSCRIPT_SERVER_PORT)"),
        ("TURNSCRIPT_SERVER_PROT", "1", "TURNSCRIPT_SERVER_PROT", "did you mean 'TURNSCRIPT_SERVER_PORT'"),
        ("TURNSCRIPT_MODELS_M_CONTEXX", "1", "TURNSCRIPT_MODELS_M_CONTEXX", "did you mean"),
        ("TURNSCRIPT_MODELS_CONTEXT", "1", "TURNSCRIPT_MODELS_CONTEXT", "unknown setting"),
        ("TURNSCRIPT_MODELS_M_ALIASES", "[1]", "models.m.aliases", "expected an array"),
        ("TURNSCRIPT_MODELS_M_EXTRA", "{a = ", "models.m.extra", "expected a table of members"),
        ("TURNSCRIPT_MODELS_M_ALIASES", "[broken", "models.m.aliases", "expected an array"),
    ],
)
def test_a_bad_variable_is_told_by_its_name(name: str, text: str, path: str, words: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(None, {"TURNSCRIPT_MODELS_M_BACKEND": "http://h", name: text})
    assert path == caught.value.path
    assert words in caught.value.message


def test_variables_of_other_programs_are_left_alone() -> None:
    others = {"TURNSCRIPT_PORT": "tcp://10.0.0.1:80", "TURNSCRIPT_HOME": "x", "TURNSCRIPT": "x", "MODELS_X_KIND": "x"}
    assert Config() == load(None, others)


def test_a_variable_finds_the_model_that_the_file_has(folder: Path) -> None:
    text = MAIN.replace("main", '"Qwen-2.5 (big)"')
    found = read(folder, text, {"TURNSCRIPT_MODELS_QWEN_2_5__BIG__CONTEXT": "9"})
    assert [("Qwen-2.5 (big)", 9)] == [(model.name, model.context) for model in found.models]
    made = read(folder, text, {"TURNSCRIPT_MODELS_OTHER_ONE_BACKEND": "http://h"})
    assert ["Qwen-2.5 (big)", "other_one"] == [model.name for model in made.models]


def test_a_variable_that_could_mean_two_models_is_told(folder: Path) -> None:
    text = MAIN.replace("main", "a-b") + MAIN.replace("main", "a_b")
    with pytest.raises(InvalidConfig, match=r"could mean models\.a-b\.context and models\.a_b\.context"):
        read(folder, text, {"TURNSCRIPT_MODELS_A_B_CONTEXT": "9"})


def test_a_models_name_may_end_like_a_setting(folder: Path) -> None:
    text = MAIN.replace("main", "x_max")
    found = read(folder, text, {"TURNSCRIPT_MODELS_X_MAX_CONTEXT": "9", "TURNSCRIPT_MODELS_X_MAX_MAX_TOKENS": "3"})
    assert [(9, 3)] == [(model.context, model.max_tokens) for model in found.models]


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9 ._-]{0,12}", fullmatch=True))
def test_every_model_can_be_set_by_a_variable(name: str) -> None:
    path = ("models", name, "context")
    overrides = {f'models."{name}".backend': "http://h"}
    found = load(None, {}, overrides | {f'models."{name}".context': "7"})
    assert [(name, 7)] == [(model.name, model.context) for model in found.models]
    assert kind_at(path) is not None
    made = load(None, {variable(("models", name, "backend")): "http://h", variable(path): "8"})
    assert [8] == [model.context for model in made.models]


# Who may reach the server.


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST.", "a.localhost",
                                  "::ffff:127.0.0.1"])  # fmt: skip
def test_this_machines_own_addresses_need_no_keys(host: str) -> None:
    assert host.strip("[]") == load(None, {}, {"server.host": host}).server.host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "localhost.example.org", "*",
                                  "::ffff:10.0.0.1", "127.0.0.1.example.org"])  # fmt: skip
def test_other_addresses_need_keys_or_a_word(host: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(None, {}, {"server.host": host})
    assert "turnscript keys add" in caught.value.message
    assert "public = true (`--public`)" in caught.value.message
    assert host == load(None, {}, {"server.host": host, "server.public": True}).server.host
    assert host == load(None, {}, {"server.host": host, "server.keys": "k"}).server.host


# One setting alone.


def test_one_setting_is_read_whatever_is_wrong_elsewhere(folder: Path) -> None:
    path = folder / "turnscript.toml"
    path.write_text('[server]\nkeys = "keys.jsonl"\nport = "x"\n', encoding="utf-8")
    assert folder / "keys.jsonl" == load_setting(path, {}, "server.keys")
    assert Path.cwd() / "k" == load_setting(path, {"TURNSCRIPT_SERVER_KEYS": "k"}, "server.keys")
    assert load_setting(None, {}, "server.keys") is None
    assert load_setting(path, {}, "limits.running") is None
    with pytest.raises(InvalidConfig, match="expected an integer"):
        load_setting(path, {}, "server.port")


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("TURNSCRIPT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TURNSCRIPT_SERVER_PORT", "1234")
    assert 1234 == load().server.port
