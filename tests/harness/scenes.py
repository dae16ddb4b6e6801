"""How each page of the docs is run: what it takes for granted, and what a reader fills in."""

from __future__ import annotations

from tests.harness.documented import ROOT, Scene

# Sites of the sealed machine need not be spared, so pages without a delay of their own take less time.
HURRY = "export DRUMLIN_DELAY=0.05s"
CRAWLED = f"{HURRY}\ndrumlin crawl https://example.org/ --out example --quiet"
# A crawl with so long a delay that it is still there when the page has been run.
RUNNING = """
drumlin crawl https://example.org/ --out crawl --delay 20s --contact me@example.org > crawl.log 2>&1 < /dev/null &
until drumlin status --out crawl > status.log 2>&1 && grep -q running status.log; do sleep 0.2; done
"""
# The addresses are all on one loopback, so a server must be told which of them it is.
SERVERS = "\n".join(
    f"mkdir -p redis-{number} && (cd redis-{number} && redis-server --daemonize yes --bind 10.0.0.1{number} "
    f"--bind-source-addr 10.0.0.1{number} --cluster-announce-ip 10.0.0.1{number} "
    "--requirepass PASSWORD --masterauth PASSWORD --cluster-enabled yes --appendonly yes --save '' > /dev/null)"
    for number in (1, 2, 3, 4)
)
CLUSTER = f"""
{SERVERS}
export REDISCLI_AUTH=PASSWORD
for number in 1 2 3; do until redis-cli -h 10.0.0.1$number ping > /dev/null 2>&1; do sleep 0.1; done; done
redis-cli --cluster create 10.0.0.11:6379 10.0.0.12:6379 10.0.0.13:6379 --cluster-yes > cluster.log
until redis-cli -h 10.0.0.13 cluster info | grep -q cluster_state:ok; do sleep 0.1; done
"""
ENGINE = "redis://:PASSWORD@redis-1.example.org:6379,redis-2.example.org:6379/news"
ADDRESS = "HOST:PORT/NAMESPACE"
FLEET = f"""
{CLUSTER}
{HURRY}
echo https://example.org/ > seeds.txt
mkdir -p STORE
export DRUMLIN_COORDINATOR=https://coordinator-1.example.org:8700
export DRUMLIN_TOKEN_FILE=operator.token DRUMLIN_CA=certs/ca.pem
"""
READY = "curl --silent --fail --cacert certs/ca.pem https://coordinator-1.example.org:8700/readyz > /dev/null"
# A coordinator without tokens, for pages that only need one that answers.
PLAIN_COORDINATOR = """
drumlin coordinator --listen 127.0.0.1:8700 --no-auth --store store --no-finish https://example.org/ > c.log 2>&1 &
until curl --silent --fail http://127.0.0.1:8700/readyz > /dev/null; do sleep 0.2; done
"""
QUEUED = "https://www.example.org/new"
AT_PLAIN = "--coordinator http://127.0.0.1:8700"

SCENES: dict[str, Scene] = {
    "README.md": Scene(
        before=f"{HURRY}\necho https://example.org/ > seeds.txt",
        filled={"make demo": f"make -C {ROOT} demo"},
        beside={"drumlin open": "grep -q 127.0.0.1 beside.log", "drumlin demo --delay": "drumlin status --out slow"},
        left_out={"pip install": "it would change the environment of the tests; `make` builds the same package"},
        slow=True,
    ),
    "docs/index.md": Scene(before=HURRY),
    "docs/site-owners.md": Scene(),
    "docs/tutorial/first-crawl.md": Scene(
        before="python -m http.server 8000 --bind 127.0.0.1 > /dev/null 2>&1 &\n" + HURRY
    ),
    "docs/tutorial/sql.md": Scene(),
    "docs/how-to/ask-why.md": Scene(before=CRAWLED, filled={"drumlin top --out": "drumlin top --once --out"}),
    "docs/how-to/budgets.md": Scene(before=HURRY),
    "docs/how-to/change-settings.md": Scene(before=RUNNING, slow=True),
    "docs/how-to/deploy.md": Scene(
        before=CLUSTER,
        left_out={
            "docker": "no container engine runs here; tests/slow/test_container.py and test_compose.py do its work",
            "cd deploy/compose": "it prepares a folder for docker compose, which does not run here",
            "cp .env.example": "it prepares a folder for docker compose, which does not run here",
            "sed -i": "it prepares a folder for docker compose, which does not run here",
            "UV_TOOL_DIR": "it would install for the whole machine; tests/slow/test_release.py installs elsewhere",
            "install -m": "it would change this machine; tests/integration/test_units.py runs the units",
            "systemd-sysusers": "it would change the users of this machine",
            "systemctl": "no service manager runs here; tests/integration/test_units.py runs the units' commands",
            "kubectl": "there is no cluster here; `make check-deploy` checks the chart",
            "helm": "there is no cluster here; `make check-deploy` checks the chart",
        },
    ),
    "docs/how-to/release.md": Scene(
        left_out=dict.fromkeys(
            ("make dist", "cd dist", "sha256sum", "uv tool", "drumlin --version", "drumlin demo", "docker", "git push"),
            "tests/slow/test_release.py builds, checks and installs a release in folders of its own",
        ),
    ),
    "docs/how-to/dashboard.md": Scene(before=CLUSTER, filled={f"redis://{ADDRESS}": ENGINE}, slow=True),
    "docs/how-to/monitor.md": Scene(
        before=f"{CLUSTER}\n{HURRY}\nexport DRUMLIN_ENGINE={ENGINE}\n{PLAIN_COORDINATOR}",
        filled={
            "10.0.0.21:9464 --coordinator …": f"10.0.0.21:9464 {AT_PLAIN} --spool two --name two",
            "--coordinator …": f"{AT_PLAIN} --spool one --name one",
        },
        beside={
            "drumlin node --metrics 9464": "curl --silent --fail http://127.0.0.1:9464/metrics > /dev/null",
            "drumlin node --metrics 10": "curl --silent --fail http://10.0.0.21:9464/metrics > /dev/null",
        },
        slow=True,
    ),
    "docs/how-to/object-storage.md": Scene(
        left_out={
            "pip install": "it would change the environment of the tests; `make` installs the same extra",
            "drumlin": "there is no S3 service in the sealed machine; tests/acceptance/test_object_store.py has one",
        }
    ),
    "docs/how-to/keep-and-expire.md": Scene(
        before=CRAWLED,
        left_out={
            "drumlin tokens create": "it needs a fleet; tests/integration/test_api_taking.py has such a token",
            "curl": "it needs a fleet; tests/integration/test_api_taking.py makes the same calls",
        },
        slow=True,
    ),
    "docs/how-to/politeness.md": Scene(before=HURRY, slow=True),
    "docs/how-to/move-a-frontier.md": Scene(
        before=f"{CLUSTER}\n{CRAWLED}\ndrumlin crawl https://example.org/ --out other --quiet",
        filled={f"redis://{ADDRESS}": ENGINE, "--out example": "--out other"},
        beside={
            "drumlin coordinator": "curl --silent --fail http://127.0.0.1:8700/readyz > /dev/null",
            "drumlin node --coord": f"drumlin nodes {AT_PLAIN} > nodes.log 2>&1 && grep -q n1 nodes.log",
        },
        slow=True,
    ),
    "docs/how-to/remove-a-site.md": Scene(
        before=CRAWLED,
        left_out={
            "drumlin remove --domain": "it needs Redis and an S3 service; tests/slow/test_removal.py has both",
            "drumlin fleet": "tests/acceptance/test_fleet.py removes from a fleet that is down",
        },
    ),
    "docs/how-to/read-logs.md": Scene(
        before="mkdir -p fleet/logs\n"
        """echo '{"time":"now","level":"error","node":"n1","message":"m","request":"9ec1d4-5180"}' > fleet/logs/a.log"""
    ),
    "docs/how-to/redis-cluster.md": Scene(before=SERVERS, slow=True),
    "docs/how-to/replay.md": Scene(before=HURRY, slow=True),
    "docs/how-to/resume.md": Scene(
        before=f"{RUNNING.replace('--out crawl', '--out example')}\n{HURRY}",
        # The crawl ends when what is in flight is done.
        beside={"drumlin stop": "! drumlin pause --out example > /dev/null 2>&1"},
        slow=True,
    ),
    "docs/how-to/run-a-fleet.md": Scene(
        before=FLEET,
        filled={
            "NAME": '"$(hostname)"',
            "revoke ID": 'revoke "$(drumlin tokens list --json | jq -r \'.[] | select(.name == "me") | .id\')"',
            # The node was drained before, so this one waits.
            "drumlin enqueue --known": f"drumlin enqueue {QUEUED}; drumlin enqueue --known",
            "--priority 9 URL": f"--priority 9 {QUEUED}",
        },
        beside={
            "drumlin coordinator": READY,
            "drumlin node --coord": "drumlin why https://example.org/page > why.log 2>&1 && grep -q Done why.log",
        },
        last=("tokens revoke",),
        slow=True,
    ),
    "docs/how-to/kafka.md": Scene(
        left_out={
            "pip install": "the environment of the tests has it by its lock file",
            "drumlin crawl": "it needs a broker; tests/slow/test_kafka.py runs it with one",
            "drumlin coordinator": "it needs a broker; tests/slow/test_kafka.py runs a fleet with one",
            "drumlin node": "it needs a broker; tests/slow/test_kafka.py runs a fleet with one",
        },
    ),
    "docs/how-to/scope.md": Scene(before=HURRY),
    "docs/how-to/trace.md": Scene(
        before=HURRY,
        left_out={
            "pip install": "the environment of the tests has it by its lock file",
            "drumlin coordinator": "test_traces.py runs one with a node, and looks at what a receiver gets",
            "drumlin node": "test_traces.py runs one with a coordinator, and looks at its spans",
        },
    ),
    "docs/how-to/simulate.md": Scene(
        left_out={"python -m bench.reality": "five real runs take ten minutes; test_bench_reality.py checks its parts"},
        slow=True,
    ),
    "docs/how-to/upgrade.md": Scene(
        before=f"export DRUMLIN_ENGINE=rocksdb:frontier DRUMLIN_COORDINATOR=http://127.0.0.1:8700\n{PLAIN_COORDINATOR}\n"
        "drumlin node --store store --name n1 > n.log 2>&1 &\n"
        "until ls store/tables/pages/*.parquet; do sleep 0.2; done",
        slow=True,
    ),
    "docs/explanation/threat-model.md": Scene(
        before=f"{CLUSTER}\nexport DRUMLIN_ENGINE={ENGINE}\ndrumlin tokens create --role viewer --out viewer.token",
        filled={"redis-cli": "redis-cli -c -h 10.0.0.11"},
        slow=True,
    ),
    "docs/reference/store.md": Scene(
        before=f"{CLUSTER}\n{HURRY}\nexport DRUMLIN_ENGINE={ENGINE}\n"
        + PLAIN_COORDINATOR.replace("--no-finish", "--finish").replace("store store", "store STORE")
        + f"drumlin node {AT_PLAIN} --store STORE --name n1 > n.log 2>&1\nkill $!\nwait",
        filled={f"redis://{ADDRESS}": ENGINE},
        slow=True,
    ),
}
# Pages that have a test of their own, because it looks closer at what they print.
OWN_TESTS = {
    "docs/tutorial/fleet.md": "tests/acceptance/test_fleet_tutorial.py",
    "docs/tutorial/curl.md": "tests/acceptance/test_curl_tutorial.py",
    "docs/explanation/capacity.md": "tests/acceptance/test_plan.py",
}
