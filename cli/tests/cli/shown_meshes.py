"""The meshes of the screens: a healthy one, a night with everything wrong, and 300 connectors.

Owns the four states. A screen is judged by what a tired operator reads in it first.
"""

from __future__ import annotations

from cli.tests.cli import shown_mesh as made
from cli.tests.cli.shown_mesh import LONG_NAME, REFUSED, W1, W2, W3, WIDE_NAMES, ShownMesh, ago
from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.configstore.v1 import config_read_service_pb2 as store
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import connector_pb2
from herdmesh.api.herder.v1 import offset_messages_pb2 as offsets
from herdmesh.devstack.readiness import ClusterHealth

DATABASE = "PostgreSQL db.prod.internal:5432/shop"
AWAY = (
    'PostgreSQL at db.prod.internal:5432/shop accepts no connections now: connection to server at "db.prod.internal" '
    "(10.12.0.7), port 5432 failed: Connection refused Is the server running on that host and accepting TCP/IP "
    "connections?"
)
DISK = "No space left on device: /var/lib/herdmesh/staging/orders-lake-0/part-00012.parquet"


def _of_all(mesh: ShownMesh) -> ShownMesh:
    """The mesh with what does not depend on its health: changes, offsets, topics, a plan."""
    mesh.history = [
        made.change(ago(minutes=41), "ada@ops-1", "PutConnectorConfig", 4711, ["transforms", "transforms.mask.fields"]),
        made.change(
            ago(hours=2),
            "herder 31871c7a-4f0e-4c39-a1d0-3b0c2f7a9c55",
            "CommitTaskConfigs",
            4702,
            task_count=4,
        ),
        made.change(
            ago(hours=2),
            "gitops-controller@ci-runner-eu-central-1-7.prod.internal",
            "PutConnectorConfig",
            4701,
            ["batch.size", "connection.url", "errors.retry.timeout", "errors.tolerance", "max.retries", "tasks.max"],
        ),
        made.change(ago(days=3), "ada@ops-1", "RestartConnector", 4688, restart=store.RestartAsked(task=1)),
        made.change(ago(days=12), "ada@ops-1", "CreateConnector", 4600, ["connector.class", "topics"]),
    ]
    mesh.offsets = [
        offsets.OffsetEntry(
            partition_json=f'{{"kafka_topic": "orders.eu-central-1.v3", "kafka_partition": {number}}}',
            offset_json=f'{{"kafka_offset": {1_204_191 + 7 * number}}}' if number != 2 else None,
        )
        for number in range(4)
    ]
    mesh.topics = [
        made.topic("orders.eu-central-1.v3", 12, 18_402_117),
        made.topic("orders.dead-letters", 1, 42),
        made.topic(f"mirror.{LONG_NAME}", 3, 1_204_311),
        made.topic("注文-東京", 6, 0),
    ]
    steps = [
        messages.PlanStep(action=messages.PLAN_ACTION_RESTART, reason="its config changes: connection.url, tasks.max"),
        *(
            messages.PlanStep(action=messages.PLAN_ACTION_RESTART, task=number, reason="the task set is made again")
            for number in range(2)
        ),
        messages.PlanStep(action=messages.PLAN_ACTION_START, task=2, reason="tasks.max grows from 2 to 3"),
    ]
    note = (
        "the tasks continue from the offsets of consumer group connect-orders-to-warehouse; at most the records since "
        "the last commit (120) are delivered again"
    )
    mesh.plan = messages.PlanConfigResponse(steps=steps, notes=[note])
    return mesh


def healthy() -> ShownMesh:
    """Three connectors on two workers."""
    listed = [
        made.running("clicks-http", "sink", W2, 2, 41.0, 12),
        made.running("orders-to-warehouse", "sink", W1, 4, 8_214.3),
        made.running("shop-source", "source", W2, 1, 1_204.0),
    ]
    two = [made.worker(name, "CONNECTED", listed) for name in (W1, W2)]
    mesh = ShownMesh(connectors=listed, workers=two)
    mesh.usage = {one.worker_id: made.usage(one, 1.1, 612) for one in two}
    mesh.stores = {
        made.CONFIG_STORES[0]: made.store_status(topic="connect-configs"),
        made.CONFIG_STORES[1]: made.store_status("REPLICA", topic="connect-configs"),
        made.STATUS_STORE: made.store_status(topic="connect-status"),
    }
    return _of_all(mesh)


def _night_connectors() -> list[connector_pb2.Connector]:
    once = "failed (FATAL): the same input would fail again; remove the cause and `herd restart {} --task {}`"
    name = "orders-to-warehouse"
    orders = [
        made.task(name, number, made.status("RUNNING", W1, ago(days=3)), rate=2_053.6, behind=12_803)
        for number in (0, 2)
    ]
    for number in (1, 3):
        refused = made.failed(W1, ago(hours=6), "FATAL", REFUSED, once.format(name, number))
        orders.append(made.task(name, number, refused, behind=1_403_118))
    orders.sort(key=lambda one: one.id.task)
    shop = [
        made.task(
            "shop-source", number, made.waiting(W1, DATABASE, AWAY, ago(minutes=47), 38, made.NOW.replace(second=21))
        )
        for number in range(3)
    ]
    no_slot = made.waiting(W1, "a run slot", "all 9 slots of this worker are taken", ago(minutes=12))
    slots = [
        made.task("clicks-http", number, shown)
        for number, shown in enumerate((no_slot, made.status("RUNNING", W1, ago(days=3))))
    ]
    lost = (
        f"the stream of {W2} broke; it goes elsewhere unless {W2} is back within 7 s",
        f"starts on {W1} next",
    )
    moved = [
        made.task("payments", 0, made.status("RUNNING", W2, ago(days=1), lost[0]), rate=0.0, behind=310),
        made.task("payments", 1, made.status("UNASSIGNED", None, ago(seconds=4), lost[1])),
    ]
    missing = "waits for a worker: no connected worker has the plugin com.example.connect.SalesforceSourceConnector 2.1"
    lake = made.status("RESTARTING", W1, ago(seconds=31), "restart 3 of 10 is under way")
    lake.auto_restart.attempt, lake.auto_restart.attempts_max = 3, 10
    lake.auto_restart.last_failure.message = DISK
    lake.auto_restart.last_failure.error_class = common.ERROR_CLASS_RETRIABLE
    own = made.status("RUNNING", W1, ago(days=3))
    return [
        made.connector("archive", "sink", made.status("STOPPED", None, ago(days=40)), wanted="STOPPED"),
        made.connector("clicks-http", "sink", own, slots, behind=88_120),
        made.running(LONG_NAME, "source", W1, 1, 311.0),
        made.connector("orders-lake", "sink", own, [made.task("orders-lake", 0, lake, behind=9_120)]),
        made.connector(name, "sink", own, orders),
        made.connector("payments", "sink", made.status("RUNNING", W2, ago(days=1), lost[0]), moved),
        made.connector("salesforce", "source", made.status("UNASSIGNED", None, ago(minutes=52), missing)),
        made.connector("shop-source", "source", own, shop),
        made.connector(
            "users",
            "source",
            made.status("PAUSED", W3, ago(hours=20)),
            [made.task("users", 0, made.status("PAUSED", W3, ago(hours=20)))],
            wanted="PAUSED",
        ),
        *(made.running(each, "sink", W1, 1, 17.0, 3) for each in WIDE_NAMES),
    ]


def night() -> ShownMesh:
    """Everything is wrong at once: failed tasks, a table without a column, an outage of the database, no free slot, a
    dead worker, a store without writer, a disk nearly full, a clock that is wrong, long and wide names.
    """
    listed = _night_connectors()
    three = [
        made.worker(W1, "CONNECTED", listed, slots=9, queued=1),
        made.worker(W2, "LOST", listed, "its stream broke 23 s ago: keepalive watchdog timeout"),
        made.worker(W3, "DRAINING", listed, "drained by ada@ops-1: kernel upgrade, back at 04:00"),
    ]
    mesh = ShownMesh(connectors=listed, workers=three)
    mesh.usage = {
        W1: made.usage(three[0], 7.9, 6_140, free_gib=0.6, skipped=("clicks-http", "shop-source")),
        W3: made.usage(three[2], 0.04, 240),
    }
    mesh.clock_skew_s = 94.24
    cut = "no broker answers at k1.prod.internal:9092,k2.prod.internal:9092: Connection refused"
    mesh.stores = {
        made.CONFIG_STORES[0]: made.store_status(
            "REPLICA", "BROKER_UNREACHABLE", cut, ago(minutes=9), topic="connect-configs"
        ),
        made.CONFIG_STORES[1]: None,
        made.STATUS_STORE: made.store_status(topic="connect-status", undecodable_count=3),
    }
    record = mesh.stores[made.STATUS_STORE]
    assert record is not None
    for number in range(3):
        record.undecodable.add(
            topic="connect-status", partition=4, offset=90_211 + number, key="backup-probe", reason="key is not JSON"
        )
    mesh.refused = [
        common.RefusedPlugin(
            folder="/opt/plugins/salesforce-2.1",
            plugin="salesforce:SalesforceSource",
            why="ImportError: libgssapi_krb5.so.2: cannot open shared object file: No such file or directory",
            fix="Install the missing library on the worker (Debian: apt install libgssapi-krb5-2).",
            worker_ids=[W1, W3],
        )
    ]
    behind = [f"orders.eu-central-1.v3-{number}" for number in range(12)]
    mesh.kafka = ClusterHealth("lkc-1", ["connect-configs-0"], behind)
    mesh.letters = [
        made.letter(
            41,
            ago(minutes=2),
            "VALUE_CONVERTER",
            "org.apache.kafka.connect.errors.DataException",
            "JsonConverter with schemas.enable requires the fields schema and payload and may not contain others",
            "orders.eu-central-1.v3",
        ),
        made.letter(40, ago(hours=7), "TASK_PUT", "herdmesh.connect.spi.errors.RecordRefused", REFUSED, "orders"),
        made.letter(7, ago(days=9), "TRANSFORMATION", "builtins.KeyError", "'customer_id'", LONG_NAME),
    ]
    return _of_all(mesh)


def many() -> ShownMesh:
    """300 connectors on three workers: one failed, one waits, the others run."""
    listed = [
        made.running(f"orders-{number:03}", "sink", (W1, W2, W3)[number % 3], 2, 17.0, 4) for number in range(300)
    ]
    once = "failed (FATAL): the same input would fail again; remove the cause and `herd restart orders-211 --task 1`"
    listed[211].tasks[1].status.CopyFrom(made.failed(W2, ago(hours=6), "FATAL", REFUSED, once))
    listed[87].tasks[0].status.CopyFrom(made.waiting(W1, DATABASE, AWAY, ago(minutes=47), 38, made.NOW))
    three = [made.worker(name, "CONNECTED", listed, slots=256) for name in (W1, W2, W3)]
    mesh = ShownMesh(connectors=listed, workers=three)
    mesh.usage = {one.worker_id: made.usage(one, 3.2, 2_048) for one in three}
    mesh.stores = healthy().stores
    return _of_all(mesh)


def outage() -> ShownMesh:
    """300 connectors of one database, which is away."""
    mesh = many()
    for number, one in enumerate(mesh.connectors):
        for each in one.tasks:
            tries = 3 + number % 5
            holder = each.status.worker_id
            each.status.CopyFrom(made.waiting(holder, DATABASE, AWAY, ago(minutes=47, seconds=number), tries, made.NOW))
    return mesh
