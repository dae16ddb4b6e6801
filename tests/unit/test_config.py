"""Settings: the four sources, their order, their errors, and the quantities people type."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from drumlin import __version__
from drumlin.config import (
    DEFAULT_USER_AGENT,
    SETTINGS,
    CrawlConfig,
    Loaded,
    ProcessConfig,
    config_options,
    crawl_options,
    format_duration,
    format_size,
    load,
    parse_duration,
    parse_size,
    settings_of,
)
from drumlin.config.key import Kind
from drumlin.config.reference import page
from drumlin.config.settings import SECTIONS
from drumlin.config.trust import who_else_may_write
from drumlin.errors import EXIT_USAGE, ConfigError

ROOT = Path(__file__).parents[2]


def load_file(folder: Path, text: str, **environ: str) -> Loaded:
    (folder / "drumlin.toml").write_text(text)
    return load({}, environ, None, folder)


def error_of(
    folder: Path, text: str = "", environ: dict[str, str] | None = None, flags: dict[str, object] | None = None
) -> str:
    (folder / "drumlin.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(flags or {}, environ or {}, None, folder)
    assert caught.value.exit_code == EXIT_USAGE
    assert "\n" not in str(caught.value)
    return str(caught.value)


# the sources and their order


def test_without_any_source_everything_is_the_default(tmp_path: Path) -> None:
    loaded = load({}, {"PATH": "/bin"}, None, tmp_path)
    assert loaded.crawl == CrawlConfig()
    assert loaded.process == ProcessConfig()
    assert {origin.source for origin in loaded.origins.values()} == {"default"}


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(tmp_path: Path) -> None:
    (tmp_path / "drumlin.toml").write_text("[crawl]\ndelay = 2\nper_host = 2\ndepth = 2\n")
    environ = {"DRUMLIN_DELAY": "3", "DRUMLIN_PER_HOST": "3"}
    loaded = load({"delay": "4s"}, environ, None, tmp_path)
    assert (loaded.crawl.delay_s, loaded.crawl.per_host, loaded.crawl.depth) == (4.0, 3, 2)
    assert str(loaded.origins["delay"]) == "flag --delay"
    assert str(loaded.origins["per_host"]) == "environment DRUMLIN_PER_HOST"
    assert str(loaded.origins["depth"]) == "file drumlin.toml [crawl] depth"
    assert str(loaded.origins["scope"]) == "default"


def test_a_flag_that_was_not_given_changes_nothing(tmp_path: Path) -> None:
    loaded = load({"delay": None, "include": ()}, {"DRUMLIN_INCLUDE": "a"}, None, tmp_path)
    assert loaded.crawl.include == ("a",)
    assert loaded.crawl.delay_s == 1.0


def test_a_named_file_is_read_in_place_of_the_one_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "drumlin.toml").write_text("[crawl]\ndelay = 2\n")
    (tmp_path / "other.toml").write_text("[crawl]\nper_host = 2\n")
    loaded = load({}, {}, Path("other.toml"), tmp_path)
    assert (loaded.crawl.delay_s, loaded.crawl.per_host) == (1.0, 2)


def test_a_file_of_another_user_is_read_only_if_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "drumlin.toml"
    path.write_text("[client]\ncoordinator = 'http://attacker.example'\ninsecure = true\n")
    if os.geteuid() == 0:
        os.chown(path, 12_345, 12_345)
    else:
        # Only root can give a file away, so here the user becomes another one.
        monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    with pytest.raises(ConfigError) as caught:
        load({}, {"DRUMLIN_TOKEN": "secret"}, None, tmp_path)
    assert str(caught.value) == (
        "The file drumlin.toml in the working directory belongs to another user, so it is not read. "
        "It could send your token to a stranger. If you trust it, say so with --config drumlin.toml."
    )
    assert load({}, {}, Path("drumlin.toml"), tmp_path).client.coordinator == "http://attacker.example"


def test_a_pipe_that_somebody_put_there_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "drumlin.toml", 0o622)
    (tmp_path / "drumlin.toml").chmod(0o622)
    with pytest.raises(ConfigError, match="can be written by every user, so it is not read"):
        load({}, {}, None, tmp_path)


def test_a_file_that_everybody_can_write_is_read_only_if_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "drumlin.toml"
    path.write_text("[crawl]\ndepth = 4\n")
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="can be written by every user, so it is not read"):
        load({}, {}, None, tmp_path)
    assert load({}, {}, path, tmp_path).crawl.depth == 4


def test_a_group_may_write_the_file_if_only_the_user_is_in_it(tmp_path: Path) -> None:
    """The status is made up, since which groups there are depends on the machine."""
    user = pwd.getpwuid(os.geteuid())
    path = tmp_path / "drumlin.toml"
    path.write_text("")

    def with_group(gid: int) -> os.stat_result:
        fields = list(path.stat())
        fields[stat.ST_MODE], fields[stat.ST_GID] = stat.S_IFREG | 0o664, gid
        return os.stat_result(fields)

    unknown = max(group.gr_gid for group in grp.getgrall()) + 1
    assert who_else_may_write(with_group(unknown)) == "can be written by a group of users"
    others = next(group.gr_gid for group in grp.getgrall() if group.gr_name != user.pw_name)
    assert who_else_may_write(with_group(others)) == "can be written by a group of users"
    own = grp.getgrgid(user.pw_gid)
    if own.gr_name == user.pw_name and not own.gr_mem:
        assert who_else_may_write(with_group(user.pw_gid)) == ""


def test_every_setting_can_be_given_in_every_place_by_the_same_text(tmp_path: Path) -> None:
    nothing = msgspec.structs.replace(load({}, {}, Path("/dev/null"), tmp_path), origins={})
    for name, setting in SETTINGS.items():
        text = setting.display(setting.default)
        given_flag = list(setting.default) if isinstance(setting.default, tuple) else text
        loaded = {
            "environment": load({}, {setting.variable: text}, Path("/dev/null"), tmp_path),
            "flag": load({name: given_flag}, {}, Path("/dev/null"), tmp_path),
        }
        if setting.key.kind is not Kind.SECRET:
            line = f"{setting.name} = {setting.toml(setting.default)}"
            loaded["file"] = load_file(tmp_path, f"[{setting.section}]\n{line}\n")
        for source, one in loaded.items():
            assert one.origins[name].source == source, name
            assert msgspec.structs.replace(one, origins={}) == nothing, name


def test_no_two_settings_share_a_name_or_a_variable() -> None:
    assert len(SETTINGS) == sum(len(settings_of(section)) for section in SECTIONS)
    assert len({setting.variable for setting in SETTINGS.values()}) == len(SETTINGS)


def test_the_settings_of_one_verb_carry_its_name_in_their_variables(tmp_path: Path) -> None:
    environ = {"DRUMLIN_NODE_STORE": "a", "DRUMLIN_COORDINATOR_STORE": "b", "DRUMLIN_COORDINATOR": "unix:c"}
    loaded = load({}, environ, None, tmp_path)
    assert (loaded.node.store, loaded.coordinator.store, loaded.client.coordinator) == ("a", "b", "unix:c")


def test_of_two_settings_that_exclude_each_other_the_one_from_the_stronger_source_is_meant(tmp_path: Path) -> None:
    (tmp_path / "drumlin.toml").write_text("[node]\nstore = 'a'\nspool = 'b'\n")
    assert load({}, {}, None, tmp_path).stronger("node_store", "node_spool") == ""
    assert load({}, {"DRUMLIN_NODE_SPOOL": "c"}, None, tmp_path).stronger("node_store", "node_spool") == "node_spool"
    assert load({"node_store": "c"}, {}, None, tmp_path).stronger("node_store", "node_spool") == "node_store"


def test_none_takes_a_limit_away(tmp_path: Path) -> None:
    (tmp_path / "drumlin.toml").write_text("[crawl]\ndepth = 3\nbytes_max = '1GB'\n")
    loaded = load({"depth": "none"}, {"DRUMLIN_BYTES_MAX": "none"}, None, tmp_path)
    assert (loaded.crawl.depth, loaded.crawl.bytes_max) == (None, None)


def test_a_list_from_a_stronger_source_replaces_the_weaker_one(tmp_path: Path) -> None:
    (tmp_path / "drumlin.toml").write_text("[crawl]\nexclude = ['a', 'b']\n")
    assert load({}, {"DRUMLIN_EXCLUDE": "c,d\ne"}, None, tmp_path).crawl.exclude == ("c,d", "e")
    assert load({"exclude": ("f",)}, {"DRUMLIN_EXCLUDE": "c"}, None, tmp_path).crawl.exclude == ("f",)
    assert load({}, {"DRUMLIN_EXCLUDE": ""}, None, tmp_path).crawl.exclude == ()


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert load({}, {"DRUMLIN_DELAY": ""}, None, tmp_path).origins["delay"].source == "default"


def test_no_color_turns_colour_off_unless_a_setting_says_otherwise(tmp_path: Path) -> None:
    assert load({}, {"NO_COLOR": "1"}, None, tmp_path).process.color is False
    assert load({}, {"NO_COLOR": ""}, None, tmp_path).process.color is None
    assert load({}, {"NO_COLOR": "1", "DRUMLIN_COLOR": "yes"}, None, tmp_path).process.color is True
    assert load({"color": True}, {"NO_COLOR": "1"}, None, tmp_path).process.color is True


# what is wrong is said clearly


def test_an_unknown_key_is_an_error_that_names_the_nearest(tmp_path: Path) -> None:
    message = error_of(tmp_path, "[crawl]\ndelya = 1\n")
    assert message == "drumlin.toml has an unknown key 'delya' in [crawl]. Did you mean 'delay'?"
    assert "Did you mean 'pages_max'?" in error_of(tmp_path, "[crawl]\npage_max = 1\n")


def test_a_key_with_its_unit_is_led_to_its_public_name(tmp_path: Path) -> None:
    assert "Did you mean 'delay'?" in error_of(tmp_path, "[crawl]\ndelay_s = 1\n")


def test_a_key_in_the_wrong_section_is_told_its_place(tmp_path: Path) -> None:
    assert "belongs in [process]" in error_of(tmp_path, "[crawl]\nconcurrency = 10\n")
    assert "Put it in [crawl]" in error_of(tmp_path, "delay = 10\n")
    assert "Did you mean 'crawl'?" in error_of(tmp_path, "[crawls]\ndelay = 10\n")
    assert "section [crawl]" in error_of(tmp_path, "crawl = 1\n")
    assert "section [coordinator]" in error_of(tmp_path, "coordinator = 'unix:a'\n")
    assert "belongs in [process] or [node] or [coordinator]" in error_of(tmp_path, "[crawl]\nstore = 'a'\n")


def test_an_unknown_variable_is_an_error_but_test_switches_are_none_of_our_business(tmp_path: Path) -> None:
    assert "Did you mean 'DRUMLIN_DELAY'?" in error_of(tmp_path, environ={"DRUMLIN_DELLAY": "1"})
    assert "Did you mean 'DRUMLIN_NODE_STORE'?" in error_of(tmp_path, environ={"DRUMLIN_NODE_STOER": "1"})
    load({}, {"DRUMLIN_TEST_ABORT": "1"}, Path("/dev/null"), tmp_path)


def test_a_mistyped_key_of_a_node_is_led_to_the_nearest_of_its_section(tmp_path: Path) -> None:
    message = error_of(tmp_path, "[node]\nspol = 'a'\n")
    assert message == "drumlin.toml has an unknown key 'spol' in [node]. Did you mean 'spool'?"


def test_a_secret_in_a_settings_file_is_refused_and_not_repeated(tmp_path: Path) -> None:
    message = error_of(tmp_path, "[client]\ntoken = 'drumlin_join_a_0_b'\n")
    assert message.startswith("drumlin.toml has the secret 'token' in [client]. Others may read that file:")
    assert "drumlin_join" not in message


def test_a_password_and_a_token_are_not_shown() -> None:
    engine, token = SETTINGS["engine"], SETTINGS["token"]
    assert engine.without_secrets("redis://me:pass@word@h1,h2/crawl") == "redis://***@h1,h2/crawl"
    assert engine.without_secrets("rocksdb:frontier") == "rocksdb:frontier"
    assert token.without_secrets("drumlin_join_a_0_b") == "(not shown)"
    assert token.without_secrets(None) is None


def test_an_unknown_flag_name_is_an_error(tmp_path: Path) -> None:
    assert "no setting 'delai'" in error_of(tmp_path, flags={"delai": 1})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("delay", "-1", "a duration"),
        ("delay", "1 fortnight", "a duration"),
        ("delay", float("nan"), "a duration"),
        ("delay", "2d", "at most 1d"),
        ("delay", True, "a duration"),
        ("depth", "1.5", "a whole number"),
        ("depth", True, "a whole number"),
        ("depth", -1, "at least 0"),
        ("depth", "٣", "a whole number"),
        ("pages_max", "0", "at least 1"),
        ("per_host", "none", "a whole number"),
        ("bytes_max", "10 zettabytes", "a size"),
        ("scope", "planet", "one of page, prefix, host, domain, any"),
        ("assets", "maybe", "true or false"),
        ("assets", 1, "true or false"),
        ("include", ("(",), "regular expressions"),
        ("include", 3, "a list of regular expressions"),
        ("include", [3], "a list of regular expressions"),
        ("out", "", "not empty"),
        ("user_agent", "bot\r\nX-Evil: 1", "printable ASCII"),
        ("user_agent", "(no name)", "begins with the crawler's name"),
        ("scope", "loud", "one of page"),
        ("coordinator_listen", "here", "HOST:PORT or unix:PATH"),
        ("coordinator_listen", "[::1]:70000", "HOST:PORT or unix:PATH"),
        ("coordinator_trusted_proxy", ("10.0.0.0/24", "proxy.example"), "a list of addresses or networks"),
        ("node_memory_max", "much", "a size"),
        ("fleet_replicas", "6", "at most 5"),
    ],
)
def test_a_bad_value_is_one_sentence_that_says_what_it_should_be(
    tmp_path: Path, name: str, value: object, expected: str
) -> None:
    message = error_of(tmp_path, flags={name: value})
    assert message.startswith(f"{SETTINGS[name].flag} must be ")
    assert expected in message


def test_an_error_in_a_file_names_the_file_section_and_key(tmp_path: Path) -> None:
    assert error_of(tmp_path, "[process]\nnodes = 0\n").startswith("drumlin.toml [process] nodes must be at least 1")


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml cannot be read: No such file"):
        load({}, {}, Path("nowhere.toml"), tmp_path)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load({}, {}, tmp_path, tmp_path)


@pytest.mark.parametrize("content", [b"[crawl\n", b"\xff\xfe", b"a = " + b"[" * 100_000, b"#" * 2_000_000])
def test_a_file_that_is_no_toml_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "drumlin.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"^The configuration file drumlin\.toml is "):
        load({}, {}, None, tmp_path)


# the crawl's identity


def test_the_hash_tells_crawls_apart_and_ignores_the_process(tmp_path: Path) -> None:
    hashes = {load({"delay": delay}, {}, None, tmp_path).crawl.config_hash() for delay in ("1", "1s", "1000ms")}
    assert hashes == {CrawlConfig().config_hash()}
    assert CrawlConfig(delay_s=2.0).config_hash() != CrawlConfig().config_hash()
    assert load({"nodes": "7"}, {}, None, tmp_path).crawl.config_hash() == CrawlConfig().config_hash()


def test_a_crawl_config_survives_the_journey_to_a_node() -> None:
    config = CrawlConfig(include=("a", "b"), depth=3, time_max_s=1.5)
    assert msgspec.json.decode(msgspec.json.encode(config), type=CrawlConfig) == config
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=CrawlConfig) == config


def test_the_default_user_agent_is_honest() -> None:
    assert CrawlConfig().product_token == "drumlin"
    assert "+https://" in DEFAULT_USER_AGENT


# quantities


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1500", 1500), ("10GB", 10**10), ("16MiB", 2**24), ("1.5 kb", 1500), ("2k", 2000), ("1t", 10**12)],
)
def test_a_size_is_read_as_people_write_it(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("1.5", 1.5), ("90s", 90), ("2h", 7200), ("1h30m", 5400), ("500ms", 0.5), ("1d 12h", 129600)],
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "GB", "-1", "1e3", "1,5GB", "inf", "nan", "1 2", "h", "1h30", "9" * 400 + "d"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)
    if not text.startswith("9"):
        with pytest.raises(ValueError, match="not a size"):
            parse_size(text)


@given(st.integers(0, 2**63))
def test_a_size_that_was_written_is_read_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.floats(0, 1e9, allow_subnormal=False) | st.integers(0, 10**9).map(float))
def test_a_duration_that_was_written_is_read_back(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.text())
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    for parse in (parse_size, parse_duration):
        with contextlib.suppress(ValueError):
            assert parse(text) >= 0


# flags and the reference page come from the table


def test_every_setting_has_a_flag_made_from_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Loaded] = []

    @click.command()
    @click.argument("urls", nargs=-1)
    @crawl_options
    def command(loaded: Loaded, urls: tuple[str, ...]) -> None:
        seen.append(loaded)
        assert urls == ("http://a.example/",)

    monkeypatch.chdir(tmp_path)
    arguments = "http://a.example/ --delay 2 --include x --include y --assets --no-sitemaps --json --out d --nodes 3"
    result = CliRunner().invoke(command, arguments.split(), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert (seen[0].crawl.delay_s, seen[0].crawl.include) == (2.0, ("x", "y"))
    assert (seen[0].crawl.assets, seen[0].crawl.sitemaps) == (True, False)
    assert (seen[0].process.json, seen[0].process.out, seen[0].process.nodes) == (True, "d", 3)
    help_text = CliRunner().invoke(command, ["--help"]).output
    flags = [setting.flag for setting in (*settings_of("crawl"), *settings_of("process"))]
    assert [flag for flag in flags if flag not in help_text] == []


def test_a_command_may_have_some_of_the_flags_and_still_gets_all_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Loaded] = []

    @click.command()
    @config_options("out")
    def command(loaded: Loaded) -> None:
        seen.append(loaded)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUMLIN_DELAY", "3")
    assert CliRunner().invoke(command, ["--out", "d"]).exit_code == 0
    assert (seen[0].process.out, seen[0].crawl.delay_s) == ("d", 3.0)
    assert CliRunner().invoke(command, ["--delay", "1"]).exit_code == EXIT_USAGE


def test_the_reference_page_is_current() -> None:
    assert (ROOT / "docs/reference/configuration.md").read_text() == page(), "run `make docs`"


def test_every_exit_code_is_documented_once() -> None:
    from drumlin import errors
    from drumlin.cli.exit_codes import EXIT_CODES, reference_page

    documented = [row.code for row in EXIT_CODES]
    assert {value for name, value in vars(errors).items() if name.startswith("EXIT_")} <= set(documented)
    assert len(documented) == len(set(documented))
    assert (ROOT / "docs/reference/exit-codes.md").read_text() == reference_page(), "run `make docs`"


@pytest.mark.parametrize(
    ("agent", "contact", "sent"),
    [
        (DEFAULT_USER_AGENT, None, DEFAULT_USER_AGENT),
        (DEFAULT_USER_AGENT, "me@example.org", f"drumlin/{__version__} (+me@example.org)"),
        ("MyBot/2.0", "https://example.org/bot", "MyBot/2.0 (+https://example.org/bot)"),
        ("MyBot/2.0 (+me@example.org)", "me@example.org", "MyBot/2.0 (+me@example.org)"),
    ],
)
def test_the_contact_stands_in_the_user_agent_once(agent: str, contact: str | None, sent: str) -> None:
    config = CrawlConfig(user_agent=agent, contact=contact)
    assert config.sent_user_agent == sent
    assert config.names_contact == (contact is not None)
    assert CrawlConfig(user_agent="MyBot/1.0 (+https://example.org/)").names_contact


@pytest.mark.parametrize("contact", ["nobody", "me@example.org)\r\nX-Evil: 1", "(me@example.org)", ""])
def test_a_contact_to_which_nobody_can_write_is_refused(contact: str) -> None:
    with pytest.raises(ConfigError, match="--contact must be"):
        load({"contact": contact}, {}, None, Path())
