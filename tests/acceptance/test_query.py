"""`drumlin query`: questions over the tables, as a table, JSON and CSV; and that a question can do nothing but read."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
from contextlib import ExitStack
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drumlin.cli.query import fitting
from drumlin.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, ConfigError
from drumlin.sql.database import answering, files_of
from drumlin.sql.ready import QUESTIONS
from drumlin.sql.reference import reference_page
from drumlin.sql.views import TABLES, VIEWS
from drumlin.store.spools import JOURNAL_SUFFIX, SPOOLS
from drumlin.store.tables.schema import COLUMNS, SCHEMAS
from drumlin.testing import FakeWeb, Response
from tests.acceptance.commands import FAST, NO_PATIENCE, crawl, drumlin, end, running, wait_until

ROOT = Path(__file__).parents[2]
WIDTH = 80


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a crawl in `crawl`, of a site with a page that is broken and one whose title is hostile."""
    folder = tmp_path_factory.mktemp("query")
    with FakeWeb(hosts=0) as web:
        links = "".join(f'<a href="/{name}">to {name}</a> ' for name in ("a", "b", "gone", "broken", "moved", "日本"))
        web.page("site", "/", f"<title>Home</title>{links}")
        web.page("site", "/a", "<title>A \x1b[31mred\x1b[0m \u202e title</title>" + "words " * 300)
        web.page("site", "/b", "<title>B</title>" + "others " * 30)
        web.respond("site", "/gone", Response(status=404))
        web.respond("site", "/broken", Response(status=500))
        web.respond("site", "/moved", Response(status=301, headers={"Location": "/a"}))
        assert crawl(folder, web.url("site"), *NO_PATIENCE, "--out", "crawl").returncode == EXIT_OK
    return folder


def asked(folder: Path, *arguments: str, code: int = EXIT_OK) -> str:
    done = drumlin(folder, "query", *arguments, "--out", "crawl")
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code == EXIT_OK else done.stderr


def test_an_answer_is_a_table_that_fits_80_columns(folder: Path) -> None:
    said = asked(folder, "SELECT url, title, fetch_status, text FROM pages ORDER BY url")
    lines = said.splitlines()
    assert lines[0].split() == ["url", "title", "fetch_status", "text"]
    assert len(lines) == 2 + 5
    assert max(map(len, lines)) <= WIDTH
    assert "…" in said, "long texts are cut"
    assert "\x1b" not in said, "a title cannot colour the terminal"
    assert "\u202e" not in said


def test_rows_of_more_columns_than_fit_are_shown_a_value_a_line(folder: Path) -> None:
    lines = asked(folder, "SELECT * FROM pages ORDER BY url LIMIT 2").splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) == 2 * len(COLUMNS["pages"]) + 1
    assert [line.split()[0] for line in lines[: len(COLUMNS["pages"])]] == list(COLUMNS["pages"])


def test_a_mistyped_question_is_led_to_the_nearest(folder: Path) -> None:
    assert "There is no ready question 'outcome'. Did you mean 'outcomes'?" in asked(folder, "outcome", code=EXIT_USAGE)
    assert "`drumlin query` lists them." in asked(folder, "xyz", code=EXIT_USAGE)


def test_statuses_are_counted_as_in_the_report(folder: Path) -> None:
    """A robots.txt is no page of the crawl."""
    counted = json.loads(asked(folder, "statuses", "--json"))
    report = json.loads((folder / "crawl" / "report.json").read_text())
    assert {str(one["fetch_status"]): one["answers"] for one in counted} == report["statuses"]


def test_json_and_csv_have_all_rows_in_full(folder: Path) -> None:
    sql = "SELECT title, fetch_status, fetch_time, length(text) AS chars, redirects FROM pages ORDER BY url"
    records = json.loads(asked(folder, sql, "--json"))
    rows = list(csv.DictReader(io.StringIO(asked(folder, sql, "--csv"))))
    assert len(records) == len(rows) == 5
    assert [str(one["fetch_status"]) for one in records] == [one["fetch_status"] for one in rows]
    assert any("\x1b[31mred" in (one["title"] or "") for one in records), "programs get what the page says"
    assert records[0]["fetch_time"].endswith(("Z", "+00:00"))
    assert json.loads(asked(folder, "SELECT 1 AS one WHERE false", "--json")) == []


def test_a_long_answer_is_cut_on_the_terminal_and_says_so(folder: Path) -> None:
    done = drumlin(folder, "query", "SELECT range AS n FROM range(1000)", "--out", "crawl")
    assert len(done.stdout.splitlines()) == 2 + 100
    assert "more than 100 rows" in done.stderr
    assert len(asked(folder, "SELECT range AS n FROM range(1000)", "--csv").splitlines()) == 1001


def test_without_sql_the_ready_questions_are_listed(folder: Path) -> None:
    said = asked(folder)
    assert all(name in said and question.asks in said for name, question in QUESTIONS.items())
    assert all(name in said for name in (*TABLES, *VIEWS))
    assert json.loads(asked(folder, "--json")).keys() == QUESTIONS.keys()


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_ready_question_has_an_answer(folder: Path, name: str) -> None:
    with answering(folder / "crawl" / "tables", QUESTIONS[name].sql) as answer:
        rows = list(answer.rows())
    assert answer.columns
    assert rows or name in {"duplicates", "denied"}


@pytest.mark.parametrize("name", [*COLUMNS, *VIEWS])
def test_every_view_has_the_documented_columns(folder: Path, name: str) -> None:
    documented = VIEWS[name].columns if name in VIEWS else COLUMNS[name]
    with answering(folder / "crawl" / "tables", f"FROM {name}") as answer:
        assert answer.columns == list(documented)


def test_views_say_what_became_of_urls(folder: Path) -> None:
    dead = json.loads(asked(folder, "SELECT url, kind, attempts FROM dead", "--json"))
    assert [(one["url"].rpartition("/")[2], one["kind"], one["attempts"]) for one in dead] == [
        ("broken", "http_5xx", 1)
    ]
    broken = json.loads(asked(folder, "SELECT target, fetch_status FROM broken_links", "--json"))
    ends = {one["target"].rpartition("/")[2]: one["fetch_status"] for one in broken}
    assert ends == {"gone": 404, "%E6%97%A5%E6%9C%AC": 404, "broken": 500}
    moved = json.loads(asked(folder, "SELECT redirect_to FROM redirects", "--json"))
    assert [one["redirect_to"].rpartition("/")[2] for one in moved] == ["a"]


FORBIDDEN = [
    "COPY pages TO 'stolen.parquet'",
    "COPY (SELECT 1) TO 'crawl/tables/pages/evil.parquet'",
    "EXPORT DATABASE 'crawl/tables/out'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO 'crawl/tables/pages/evil.parquet'",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_csv('secret.txt')",
    "SELECT * FROM 'secret.txt'",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM read_blob('/proc/self/fd/*')",
    "SELECT * FROM glob('/proc/self/fd/*/*')",
    "SELECT * FROM read_text('/proc/self/fd/0')",
    "SELECT * FROM read_parquet('http://127.0.0.1:9/x.parquet')",
    "ATTACH 'other.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "PRAGMA enable_profiling",
    "CREATE TABLE t AS SELECT 1",
    "DELETE FROM pages",
    "SELECT 1; COPY (SELECT 1) TO 'stolen.csv'",
    "CALL pragma_version()",
    "SELECT * FROM query('COPY (SELECT 1) TO ''stolen.csv''')",
]


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_a_question_can_read_the_tables_and_do_nothing_else(folder: Path, sql: str) -> None:
    (folder / "secret.txt").write_text("a\nsecret\n")
    before = sorted(path for path in folder.rglob("*") if path.is_file())
    said = asked(folder, sql, code=EXIT_USAGE)
    assert said.startswith("drumlin: ")
    assert len(said.splitlines()) == 1
    assert "secret\n" not in said
    assert sorted(path for path in folder.rglob("*") if path.is_file()) == before


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT nowhere FROM pages", "nowhere"),
        ("SELECT * FROM nothing", "nothing"),
        ("", "no question"),
        ("SELECT 1; SELECT 2", "several statements"),
        ("SELECT 1/0 AS x, error('it broke') FROM pages", "it broke"),
    ],
)
def test_bad_sql_is_one_clear_sentence(folder: Path, sql: str, words: str) -> None:
    said = asked(folder, sql, code=EXIT_USAGE)
    assert words in said
    assert len(said.splitlines()) == 1


def test_a_folder_without_tables_is_said_and_empty_tables_are_asked(tmp_path: Path) -> None:
    done = drumlin(tmp_path, "query", "FROM pages", "--out", "nowhere")
    assert done.returncode == EXIT_USAGE
    assert "There are no tables in nowhere." in done.stderr
    (tmp_path / "crawl" / "tables").mkdir(parents=True)
    assert json.loads(asked(tmp_path, "SELECT count(*) AS n FROM pages", "--json")) == [{"n": 0}]
    for name in (*COLUMNS, *VIEWS):
        asked(tmp_path, f"FROM {name}", "--csv")
    for name in QUESTIONS:
        asked(tmp_path, name, "--csv")


def test_a_crawl_can_be_asked_while_it_runs(tmp_path: Path) -> None:
    with FakeWeb(hosts=0) as web:
        web.page("site", "/", "".join(f'<a href="/{number}">{number}</a>' for number in range(100)))
        with running(tmp_path, "crawl", web.url("site"), *FAST[:1], "--delay", "1", "--out", "crawl") as process:
            wait_until(lambda: (tmp_path / "crawl" / "tables").is_dir() and web.requests, "the first request")
            assert int(asked(tmp_path, "SELECT count(*) AS n FROM fetches", "--csv").split()[1]) >= 0
            assert end(process, signal.SIGINT).returncode == EXIT_INTERRUPTED
        assert int(asked(tmp_path, "SELECT count(*) AS n FROM fetches", "--csv").split()[1]) >= 1


def test_a_directory_of_any_name_can_be_asked(folder: Path, tmp_path: Path) -> None:
    odd = tmp_path / "it's [a] *?"
    os.symlink(folder / "crawl", odd)
    done = drumlin(tmp_path, "query", "SELECT count(*) AS n FROM pages", "--out", odd, "--json")
    assert done.returncode == EXIT_OK, done.stderr
    assert json.loads(done.stdout) == [{"n": 5}]


def test_rows_are_those_of_the_moment_though_a_running_crawl_replaces_the_files(tmp_path: Path) -> None:
    folder, spool = tmp_path / "tables" / "pages", tmp_path / SPOOLS / "n0"
    folder.mkdir(parents=True)
    spool.mkdir(parents=True)

    def write(name: str, rows: int) -> None:
        with duckdb.connect() as connection:
            connection.sql(f"FROM range({rows})").write_parquet(str(folder / name))

    # A crawl that was paused for hours goes on where it was: its segment still has a journal.
    write("n0-1-00002.parquet", 5)
    os.utime(folder / "n0-1-00002.parquet", (0.0, 0.0))
    (spool / f"n0-1-00002{JOURNAL_SUFFIX}").touch()
    write("n0-1-00001.parquet", 3)
    with ExitStack() as stack:
        complete, growing = files_of(tmp_path / "tables", stack)["pages"]
        assert complete == str(folder / "n0-1-00001.parquet"), "it stays as it is, and needs no descriptor"
        write("longer", 100_000)
        os.replace(folder / "longer", folder / "n0-1-00002.parquet")
        with duckdb.connect() as connection:
            assert connection.read_parquet(growing).fetchall() == [(number,) for number in range(5)]


@pytest.mark.parametrize("odd", [2**62, -(2**62), None])
def test_times_that_python_has_no_date_for_are_told_as_they_are(tmp_path: Path, odd: int | None) -> None:
    for table, schema in SCHEMAS.items():
        (tmp_path / table).mkdir()
        rows = [{"url": "http://a.test/", "outcome": "fetched", "host": "a.test", "attempt": 1, "fetch_status": 200}]
        rows = [row | {"fetch_time": when} for row in rows for when in (odd, 1_760_000_000_000_000)]
        pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / table / "odd.parquet")
    for sql in (*(f"FROM {name}" for name in (*COLUMNS, *VIEWS)), *(one.sql for one in QUESTIONS.values())):
        with answering(tmp_path, sql) as answer:
            list(answer.rows())
    with answering(tmp_path, "SELECT fetch_time, 'infinity'::TIMESTAMP FROM fetches ORDER BY fetch_time") as answer:
        told = [str(value) for row in answer.rows() for value in row]
    assert sum("2025-10-09 08:53:20" in value for value in told) == 1


@pytest.mark.parametrize(
    "value", ["[DATE '10000-01-01']", "['infinity'::TIMESTAMP]", "[TIMESTAMP_NS '2026-01-01 00:00:00.000000001']"]
)
def test_a_value_that_python_has_no_word_for_is_a_sentence(folder: Path, value: str) -> None:
    with answering(folder / "crawl" / "tables", f"SELECT {value}") as answer, pytest.raises(ConfigError) as told:
        list(answer.rows())
    assert re.fullmatch(r"A value of the answer .* \(.+\)\. As text it can: column::VARCHAR\.", told.value.message)
    with answering(folder / "crawl" / "tables", f"SELECT ({value})::VARCHAR") as answer:
        assert len(list(answer.rows())) == 1


def test_columns_of_the_same_name_are_told_apart(folder: Path) -> None:
    sql = "SELECT 1 AS url, 2 AS url, 3 AS url_1, 4 AS url, 5 AS URL"
    with answering(folder / "crawl" / "tables", sql) as answer:
        assert answer.columns == ["url", "url_2", "url_1", "url_3", "URL"]
        assert list(answer.rows()) == [(1, 2, 3, 4, 5)]
    assert json.loads(asked(folder, sql, "--json")) == [{"url": 1, "url_2": 2, "url_1": 3, "url_3": 4, "URL": 5}]


def test_a_question_reads_no_descriptor_that_it_inherited(folder: Path) -> None:
    (folder / "secret.txt").write_text("secret")
    with ExitStack() as stack:
        # A file, and a folder whose names could be listed.
        file, other = (os.open(path, os.O_RDONLY) for path in (folder / "secret.txt", folder))
        stack.callback(os.close, file)
        stack.callback(os.close, other)
        for source in (f"read_blob('/proc/self/fd/{file}')", "glob('/proc/self/fd/*/*')"):
            sql = f"FROM {source}"
            with pytest.raises(ConfigError), answering(folder / "crawl" / "tables", sql) as answer:
                list(answer.rows())


def test_a_question_that_is_ended_leaves_no_files_behind(folder: Path) -> None:
    endless = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b, (SELECT count(*) FROM pages)"
    with running(folder, "query", endless, "--out", "crawl") as process:
        wait_until(lambda: list(folder.glob("drumlin-query-*")), "its folder")
        assert end(process, signal.SIGTERM).returncode == EXIT_INTERRUPTED
    assert list(folder.glob("drumlin-query-*")) == []


def test_widths_fit_and_no_column_is_cut_before_it_must_be() -> None:
    assert fitting([10, 20], 80) == [10, 20]
    assert fitting([10, 200, 300], 80) == [10, 33, 33]
    assert fitting([4, 100], 50) == [4, 44]
    assert min(fitting([50] * 40, 80)) == 6


def test_the_reference_page_is_current() -> None:
    assert (ROOT / "docs/reference/sql.md").read_text() == reference_page(), "run `make docs`"
