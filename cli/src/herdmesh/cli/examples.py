"""Examples in the help of every command.

Owns the texts: a command line and its meaning. `herdmesh.cli.grammar` adds them to the help; a test parses each one,
and fails for a command without an example. The keys are the words of the command as it is declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

Example = tuple[str, str]

EXAMPLES: Final[dict[tuple[str, ...], tuple[Example, ...]]] = {
    ("up",): (
        ("herd up", "everything in the foreground; Ctrl-C stops it"),
        ("herd up --workers 2 --detach", "in the background; `herd down` stops it"),
        ("herd up --detach --context dev", "under a name of yours in `herd context list`"),
    ),
    ("down",): (
        ("herd down", "stop the mesh of this folder"),
        ("herd down --context dev", "stop the mesh of another folder by the name of its context"),
        ("herd down --data /srv/mesh", "stop the mesh of another folder"),
    ),
    ("example", "list"): (("herd example list", "their names and what they show"),),
    ("example", "run"): (("herd example run file-to-parquet", "on the mesh of this folder"),),
    ("paths",): (("herd paths", "data, logs, state, downloads"),),
    ("run",): (
        ("herd run worker.properties file-sink.properties", "as connect-standalone.sh"),
        ("herd run worker.properties a.json b.json --listen 127.0.0.1:0", "two connectors, any free port"),
    ),
    ("apply",): (
        ("herd apply -f flights.json", "create the connector, or replace its config"),
        ("herd apply -f a.json -f b.json --keep-going", "apply the valid ones although another is invalid"),
        ("cat flights.json | herd apply -f -", "from standard input"),
        ("herd apply -f connectors/ --wait=ready", "all files of a folder, until all tasks run"),
        ("herd apply -f connectors/ --dry-run=server", "check on a worker, and change nothing"),
    ),
    ("create",): (
        ("herd create -f flights.json", "only if no connector has its name"),
        ("herd create -f flights.json --initial-state paused", "without running it yet"),
    ),
    ("patch",): (
        ("herd patch flights tasks.max=4", "change one key"),
        ("herd patch flights tasks.max=4 old.key-", "and remove another"),
    ),
    ("validate",): (
        ("herd validate -f flights.json", "every error and warning of the config"),
        ("herd validate -f flights.json -o json", "Connect's validation result"),
    ),
    ("plan",): (("herd plan -f flights.json", "the effects of `herd apply`, without them"),),
    ("diff",): (
        ("herd diff -f flights.json", "which keys `herd apply` would change; exit code 1 if any"),
        ("herd diff -f connectors/ --show-secrets", "of all files of a folder, with passwords"),
    ),
    ("edit",): (
        ("herd edit flights", "the config in $EDITOR; nothing happens without a change"),
        ("herd edit flights --from /tmp/herd-edit-flights.yaml", "continue an edit that was refused"),
    ),
    ("transform",): (
        ("herd transform -c flights.json records.jsonl", "run the connector's chain on the records of a file"),
        ("herd transform -c flights.json --explain records.jsonl", "show the compiled chain"),
        (
            "herd consume flights -n 10 -o json | herd transform --as-connector flights",
            "the chain of a connector of the mesh, on records of its topic",
        ),
    ),
    ("topics", "create"): (
        ("herd topics create orders", "with the broker's number of partitions"),
        ("herd topics create orders -p 6 --config cleanup.policy=compact", "six partitions, compacted"),
    ),
    ("topics", "list"): (("herd topics list", "all but internal ones"),),
    ("topics", "describe"): (("herd topics describe orders", "partitions, replicas, offsets, configs"),),
    ("topics", "delete"): (("herd topics delete orders --yes", "with all its records"),),
    ("produce",): (
        ("herd produce orders records.jsonl", "each line a record"),
        ("herd produce orders --key 7 --tombstone", "delete a key"),
        ("echo '{\"id\": 1}' | herd produce orders --key-field id", "from standard input, with keys"),
    ),
    ("consume",): (
        ("herd consume orders", "all that is there"),
        ("herd consume orders --from -10 --follow", "the last ten of each partition, then new ones"),
        ("herd consume orders --as-connector flights -o json", "decoded by a connector's converters"),
    ),
    ("history",): (
        ("herd history flights", "the latest changes"),
        ("herd history flights --diff", "with old and new values"),
        ("herd history flights -n 0 -o json", "all of them, for a program"),
    ),
    ("restore",): (
        ("herd restore flights --revision 41", "the config of a revision that `herd history flights` shows"),
    ),
    ("pause",): (
        ("herd pause flights", "move no records; tasks stay on their workers"),
        ("herd pause connector/flights", "the name as `-o name` prints it"),
        ("herd pause --match 'orders-*' --wait=paused", "all with such a name, until they are paused"),
    ),
    ("resume",): (("herd resume flights", "let a paused or stopped connector run again"),),
    ("stop",): (("herd stop flights", "end its tasks; config and offsets stay"),),
    ("restart",): (
        ("herd restart flights --include-tasks --only-failed", "restart only the parts that failed"),
        ("herd restart task flights/0", "restart one task"),
        ("herd restart --state failed --include-tasks", "all connectors with a part that failed"),
    ),
    ("delete",): (
        ("herd delete flights", "after a confirmation"),
        ("herd delete flights --yes --allow-missing", "in a script"),
        ("herd delete -f connectors/", "the connectors of all files of a folder"),
    ),
    ("set-logger",): (
        ("herd set-logger herdmesh.engine debug", "on every worker"),
        ("herd set-logger root warn --worker 127.0.0.1:7204", "on one worker"),
    ),
    ("watch",): (
        ("herd watch", "all connectors and tasks, live"),
        ("herd watch flights -o json", "a line of JSON for each change of one connector"),
    ),
    ("doctor",): (
        ("herd doctor", "what is wrong, and what to do"),
        ("herd doctor --explain TASK_FAILED", "what a code means"),
        ("herd doctor -o json", "for a monitoring script; the exit code is 1 when there is an error"),
    ),
    ("top",): (
        ("herd top", "the busiest workers and connectors now"),
        ("herd top -f --interval 5", "again every five seconds"),
    ),
    ("events",): (
        ("herd events flights --since 2h", "changes, placements, states and failures of two hours"),
        ("herd events -f", "of all connectors, as they happen"),
    ),
    ("logs", "connector"): (("herd logs co flights -f", "of all its tasks, and new lines as they come"),),
    ("logs", "task"): (("herd logs task flights/0 --since 15m", "of one task"),),
    ("logs", "worker"): (("herd logs wo 127.0.0.1:7204 -n 50", "the latest 50 lines of a worker and its tasks"),),
    ("logs", "service"): (("herd logs service herder -f", "of a process of `herd up`"),),
    ("demo",): (
        ("herd demo", "flights from Kafka to Parquet while a worker is killed"),
        ("herd demo --keep", "and keep the topic and the Parquet files"),
    ),
    ("version",): (
        ("herd version", "of this command"),
        ("herd version --herder 127.0.0.1:7203", "and of herders"),
    ),
    ("context", "list"): (("herd context list", "the current one has a star"),),
    ("context", "show"): (("herd context show", "which mesh commands use here, and why"),),
    ("context", "set"): (
        ("herd context set prod --herder kc1:7203,kc2:7203 --use", "and use it from now on"),
        ("herd context set dev --data ~/dev/.herd", "a stack of `herd up`, wherever its ports are"),
        ("herd context set prod --herder kc1:7203 --bootstrap-servers k1:9092", "with the Kafka of the mesh"),
    ),
    ("context", "use"): (
        ("herd context use prod", "in every folder, until another is used"),
        ("herd context use --none", "back to the stack of the folder"),
    ),
    ("context", "delete"): (("herd context delete prod", "the mesh itself is not touched"),),
    ("help",): (
        ("herd help", "all commands"),
        ("herd help get connectors", "one command"),
    ),
    ("get", "all"): (
        ("herd get all", "connectors, tasks and workers"),
        ("herd get all -o name", "only their names"),
    ),
    ("get", "connectors"): (
        ("herd get co", "all, with states and lag"),
        ("herd get co --state failed -o name", "names of those that failed, in whole or in part"),
        ("herd get co flights -o jsonpath='{.connector.state}'", "one value"),
        ("herd get co -c name,lag --sort lag --reverse", "the largest lag first"),
        ("herd get co --watch", "and a line for each change"),
    ),
    ("get", "tasks"): (
        ("herd get tasks", "of all connectors"),
        ("herd get tasks flights --state failed", "those of one connector that failed"),
    ),
    ("get", "workers"): (
        ("herd get wo", "all workers"),
        ("herd get wo 127.0.0.1:7204 -o yaml", "one of them"),
    ),
    ("get", "plugins"): (
        ("herd get pl", "all that the workers can load"),
        ("herd get pl ParquetSink -o json", "one of them"),
    ),
    ("get", "topics"): (("herd get topics flights", "the topics that a connector was seen to use"),),
    ("get", "loggers"): (
        ("herd get lo", "all levels, worker by worker"),
        ("herd get lo herdmesh.engine", "one logger and those below it"),
    ),
    ("describe", "connector"): (
        ("herd describe co flights", "state, tasks, errors, offsets, config, what happens next"),
        ("herd describe co flights -o yaml", "for a program"),
    ),
    ("describe", "task"): (("herd describe task flights/0", "one task"),),
    ("describe", "worker"): (("herd describe wo 127.0.0.1:7204", "one worker with its connectors and tasks"),),
    ("describe", "plugin"): (("herd describe pl ParquetSink", "its configuration keys"),),
    ("drain", "worker"): (
        ("herd drain worker 127.0.0.1:7204", "and wait until it is empty"),
        ("herd drain worker 127.0.0.1:7204 --no-wait", "return at once"),
    ),
    ("undrain", "worker"): (("herd undrain worker 127.0.0.1:7204", "let it take work again"),),
    ("dlq", "list"): (
        ("herd dlq list flights", "the newest dead letters"),
        ("herd dlq list flights --since 2h --stage VALUE_CONVERTER", "some of them"),
    ),
    ("dlq", "show"): (
        ("herd dlq show flights 0:17", "one in full"),
        ("herd dlq show flights 0:17 -o json", "in the form that `herd dlq replay -f` takes"),
    ),
    ("dlq", "replay"): (
        ("herd dlq replay flights --all --dry-run", "what would go where"),
        ("herd dlq replay flights 0:17 0:18", "these two"),
        ("herd dlq replay flights -f corrected.json", "after a correction"),
    ),
    ("offsets", "get"): (
        ("herd offsets get flights", "as a table"),
        ("herd offsets get flights -o json", "in the form that `herd offsets set -f` takes"),
    ),
    ("offsets", "set"): (
        ("herd offsets set flights --topic flights --partition 0 --offset 100", "one partition of a sink"),
        ("herd offsets set flights -f offsets.json --dry-run", "check, and change nothing"),
    ),
    ("offsets", "reset"): (("herd offsets reset flights --dry-run", "show what would be removed"),),
    ("offsets", "rewind"): (
        ("herd offsets rewind flights --to 2h", "to the records of two hours ago"),
        ("herd offsets rewind flights --to 2026-11-22T08:00:00Z --dry-run", "to a time, without a change"),
    ),
    ("plugin", "new"): (
        ("herd plugin new orders --sink", "a connector package with tests"),
        ("herd plugin new orders --source --dir packages", "in another folder"),
    ),
}


#: Commands whose first example is in the help of `herd` itself.
_FIRST: Final = (
    ("up",),
    ("apply",),
    ("get", "connectors"),
    ("describe", "connector"),
    ("doctor",),
    ("logs", "connector"),
)


def examples_text(path: tuple[str, ...]) -> str:
    """The paragraph of a command's help."""
    return _paragraph(EXAMPLES[path])


def group_examples_text(path: tuple[str, ...]) -> str:
    """The paragraph of a group's help: the first example of each of its commands; of `herd` itself the usual ones."""
    of_group = [words for words in EXAMPLES if words[: len(path)] == path] if path else _FIRST
    return _paragraph([EXAMPLES[words][0] for words in of_group])


def _paragraph(examples: Sequence[Example]) -> str:
    return "\n".join(["Examples:", *(f"$ {command}  # {meaning}" for command, meaning in examples)])
