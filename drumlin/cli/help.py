"""How `--help` of a verb looks: its options in groups, the most used first, and examples at the end."""

from __future__ import annotations

from collections.abc import Sequence

import click

OWN = "Options"
LINE_CHARS_MAX = 200
"""How long the sentence about a command may be. It is wrapped, and not cut off as click would."""
# Names of settings, whose parameters begin with `setting_`. Options in no group come first, as the verb's own.
GROUPS: dict[str, tuple[str, ...]] = {
    "What to crawl": ("scope", "include", "exclude", "types", "assets", "sitemaps"),
    "How much": ("depth", "pages_max", "bytes_max", "time_max", "host_urls_max"),
    "How politely": ("delay", "per_host", "contact", "user_agent", "robots_ttl", "allow_private", "cookies"),
    "Limits of one request": (
        *("connect_timeout", "fetch_timeout", "speed_min", "speed_window", "header_bytes_max", "body_bytes_max"),
        *("body_decoded_bytes_max", "redirects_max", "accept_encoding"),
    ),
    "After a failure": ("retries_max", "backoff_base", "backoff_max", "host_patience", "patience"),
    "Duplicates": ("near_duplicates", "near_overlap_percent"),
    "Kafka": ("events", "events_config", "events_max", "seeds_from", "seeds_idle"),
    "On this machine": (
        *("out", "store", "ui", "nodes", "concurrency", "engine", "sync", "lease", "affinity", "trace_every"),
    ),
}
ACCESS = {
    "Which crawl": ("out", "setting_coordinator"),
    "Access": tuple(
        f"setting_{name}"
        for name in ("token", "token_file", "ca", "cert", "key", "client_ca", "trusted_proxy", "insecure", "auth")
    ),
}
SHOWING = "Output"
_SHOWING = (
    *("setting_json", "setting_quiet", "setting_color", "setting_log_format", "setting_log_level"),
    *("config_file", "quiet", "as_json"),
)
_SECTION_OF = {
    **{f"setting_{name}": title for title, names in GROUPS.items() for name in names},
    **{name: title for title, names in ACCESS.items() for name in names},
    **dict.fromkeys(_SHOWING, SHOWING),
}
_PLACE = {name: place for place, name in enumerate(_SECTION_OF)}
_ORDER = (OWN, *GROUPS, *ACCESS, SHOWING)

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "sim": (
        ("12 to 40 nodes, with faults", "drumlin sim --seed 7 --short"),
        ("what a fleet would do", "drumlin sim --nodes 500 --hours 0.5 --churn 0.3 --plot fleet.svg"),
    ),
    "crawl": (
        ("one part of a site", "drumlin crawl https://example.org/docs/ --scope prefix --out manual"),
        ("many seeds, with a budget", "drumlin crawl -i seeds.txt --pages-max 10000 --bytes-max 2GB"),
        ("slowly, and with an address", "drumlin crawl example.org --delay 5s --contact me@example.net"),
    ),
    "fetch": (
        ("what would a crawl do with this page?", "drumlin fetch https://example.org/"),
        ("its text, or its links", "drumlin fetch https://example.org/ --links"),
    ),
    "demo": (
        ("keep what it leaves in ./demo", "drumlin demo --out demo"),
        ("slowly, to watch it in a browser", "drumlin demo --delay 3s"),
    ),
    "config show": (("what would this crawl use, and why?", "drumlin config show --origin --delay 5s"),),
    "status": (("watch a crawl", "drumlin status --watch --out manual"),),
    "top": (
        ("watch a crawl", "drumlin top --out manual"),
        ("its nodes, once, for a mail", "drumlin top --once --show nodes --out fleet"),
    ),
    "why": (
        ("what happened to this page?", "drumlin why https://example.org/docs/a --out manual"),
        ("why is nothing fetched?", "drumlin why --out manual"),
    ),
    "open": (("look at a crawl, also a finished one", "drumlin open manual"),),
    "report": (("for a program", "drumlin report --out manual --json"),),
    "query": (
        ("which questions are ready?", "drumlin query"),
        ("ask one", "drumlin query slow-hosts --out manual"),
        ("ask your own", 'drumlin query "SELECT title, url FROM pages LIMIT 5" --out manual'),
    ),
    "host": (("why is this host slow?", "drumlin host example.org --out manual"),),
    "hosts list": (("which hosts cannot be reached?", "drumlin hosts --state out-of-reach --out manual"),),
    "hosts set": (("ask it less often", "drumlin hosts set example.org --delay 10s --out manual"),),
    "nodes list": (("who is at work?", "drumlin nodes --coordinator https://c1.example.org:8700"),),
    "nodes drain": (("let one leave", "drumlin nodes drain n3 --out fleet"),),
    "nodes quarantine": (("keep one out", "drumlin nodes quarantine n3 --out fleet"),),
    "nodes release": (("let it in again", "drumlin nodes release n3 --out fleet"),),
    "audit": (("the last ten changes", "drumlin audit --limit 10 --out fleet"),),
    "pause": (("hold a crawl", "drumlin pause --out manual"),),
    "resume": (("go on", "drumlin resume --out manual"),),
    "stop": (("end it", "drumlin stop --out manual"),),
    "set": (
        ("ask sites less often", "drumlin set delay 5s --out manual"),
        ("leave a part out from now on", "drumlin set exclude '/calendar/' --out manual"),
    ),
    "enqueue": (("fetch this soon", "drumlin enqueue https://example.org/new --priority 9 --out manual"),),
    "dead-letters list": (("what timed out?", "drumlin dead-letters --kind timeout --out manual"),),
    "dead-letters retry": (("try a host again", "drumlin dead-letters retry --host example.org --out manual"),),
    "dead-letters drop": (("forget all", "drumlin dead-letters drop --all --out manual"),),
    "remove": (
        ("what would go?", "drumlin remove --host example.org --dry-run --out manual"),
        ("from a fleet", "drumlin remove --domain a.org --engine redis://r/docs --store s3://c/docs"),
    ),
    "fleet up": (("four nodes on this machine", "drumlin fleet up --nodes 4 https://example.org/"),),
    "fleet status": (("who is there?", "drumlin fleet status"),),
    "fleet down": (("end it; `fleet up` goes on", "drumlin fleet down"),),
    "coordinator": (
        (
            "found a crawl",
            "drumlin coordinator --listen 127.0.0.1:8700 --engine rocksdb:q example.org",
        ),
    ),
    "node": (("join a crawl", "drumlin node --coordinator https://c1:8700 --token-file join --store docs"),),
    "frontier export": (("keep it", "drumlin frontier export manual.queue --out manual"),),
    "frontier import": (
        ("fill an empty engine", "drumlin frontier import manual.queue --engine redis://10.0.0.7/docs"),
    ),
    "frontier verify": (("is it all there?", "drumlin frontier verify manual.queue --engine redis://10.0.0.7/docs"),),
    "frontier migrate": (
        ("from one machine to a fleet", "drumlin frontier migrate --from rocksdb:manual --to redis://10.0.0.7/docs"),
    ),
    "frontier checkpoint": (("while it crawls", "drumlin frontier checkpoint before-change --out manual"),),
    "frontier restore": (("go back", "drumlin frontier restore before-change --out manual"),),
    "store finish": (("after a fleet has ended", "drumlin store finish fleet/store"),),
    "store compact": (("what would be joined?", "drumlin store compact --store s3://crawls/docs --dry-run"),),
    "store collect": (("what would be removed?", "drumlin store collect --store s3://crawls/docs --dry-run"),),
    "store check": (
        ("is everything there?", "drumlin store check --store s3://crawls/docs"),
        ("a disk is lost", "drumlin store check --store s3://c/d --engine redis://r/d --refetch --node n1"),
    ),
    "retention show": (("what is kept for how long?", "drumlin retention show --out manual"),),
    "retention set": (
        ("delete WARC files after 90 days", "drumlin retention set warc --keep 90d --out manual"),
        ("move tables", "drumlin retention set tables --move-after 30d --move-to /cold"),
    ),
    "retention apply": (
        ("what would be deleted?", "drumlin retention apply --dry-run --out manual"),
        ("delete it", "drumlin retention apply --by 'night job' --store s3://crawls/docs"),
    ),
    "hold add": (("keep a host", "drumlin hold add case-7 --host example.org --reason 'a lawsuit' --out manual"),),
    "hold list": (("what is held?", "drumlin hold list --out manual"),),
    "hold lift": (("it is over", "drumlin hold lift case-7 --by counsel --out manual"),),
    "tokens create": (("let nodes join", "drumlin tokens create --role join --engine redis://10.0.0.7/docs"),),
    "tokens list": (("who has one?", "drumlin tokens list --engine redis://10.0.0.7/docs"),),
    "tokens revoke": (("make one void", "drumlin tokens revoke 3f2a --engine redis://10.0.0.7/docs"),),
    "plan": (
        ("ten billion pages in five days", "drumlin plan --pages 10B --days 5 --urls 11B"),
        ("with few hosts", "drumlin plan --pages-per-second 500 --urls 1M --hosts 200 --delay 2s"),
        ("with costs of your own", "drumlin plan --pages-per-second 500 --urls 1M --costs load.json"),
    ),
    "certs create": (("for two machines", "drumlin certs create certs --host c1.example.org"),),
    "certs show": (("until when are they good?", "drumlin certs show certs"),),
}


class Verb(click.Command):
    """A command whose help is grouped and ends with examples."""

    def grouped_options(self, context: click.Context) -> dict[str, list[tuple[str, str]]]:
        """The flags and their meanings by the titles of their groups, in the order in which they are shown."""
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in _ORDER}
        options = [parameter for parameter in self.get_params(context) if isinstance(parameter, click.Option)]
        for option in sorted(options, key=lambda option: _PLACE.get(option.name or "", len(_PLACE))):
            if (record := option.get_help_record(context)) is not None:
                groups[_SECTION_OF.get(option.name or "", OWN)].append(record)
        return {title: records for title, records in groups.items() if records}

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for title, records in self.grouped_options(context).items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(EXAMPLES.get(context.command_path.split(" ", 1)[-1], ()), formatter)


def write_examples(examples: Sequence[tuple[str, str]], formatter: click.HelpFormatter) -> None:
    """Write command lines to copy, each after a line that says what it is for."""
    if not examples:
        return
    with formatter.section("Examples"):
        for what, line in examples:
            formatter.write(f"{'':{formatter.current_indent}}# {what}\n")
            formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class VerbFamily(click.Group):
    """A verb with commands of its own."""

    command_class = Verb

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        named = [(name, self.commands[name]) for name in self.list_commands(context)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(LINE_CHARS_MAX)) for name, one in named])
