// Java Connect's two backing stores, driven as bench/stores needs them. Owns no figure: each command prints what it
// measured as lines of `name value...`, and the Python side makes ratios of them. Invariant: the stores are Connect's
// own classes, configured as ConnectDistributed configures them.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.runtime.AbstractStatus;
import org.apache.kafka.connect.runtime.RestartRequest;
import org.apache.kafka.connect.runtime.SessionKey;
import org.apache.kafka.connect.runtime.TaskStatus;
import org.apache.kafka.connect.runtime.WorkerConfigTransformer;
import org.apache.kafka.connect.runtime.distributed.DistributedConfig;
import org.apache.kafka.connect.storage.ClusterConfigState;
import org.apache.kafka.connect.storage.ConfigBackingStore;
import org.apache.kafka.connect.storage.KafkaConfigBackingStore;
import org.apache.kafka.connect.storage.KafkaStatusBackingStore;
import org.apache.kafka.connect.util.ConnectorTaskId;
import org.apache.kafka.connect.util.SharedTopicAdmin;

public final class StoresBench {
    private static final String CLIENT_ID_BASE = "java-bench-";
    private static final String WORKER = "127.0.0.1:8083";

    public static void main(String[] args) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 1; i + 1 < args.length; i += 2) {
            options.put(args[i], args[i + 1]);
        }
        switch (args[0]) {
            case "replay-config" -> replayConfig(options);
            case "replay-status" -> replayStatus(options);
            case "writes" -> writes(options);
            case "statuses" -> statuses(options);
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void replayConfig(Map<String, String> options) {
        for (int round = 0; round < number(options, "rounds"); round++) {
            SharedTopicAdmin admin = new SharedTopicAdmin(new HashMap<>(worker(options)));
            long begun = System.nanoTime();
            KafkaConfigBackingStore store = configStore(options, admin);
            store.start();
            long ended = System.nanoTime();
            ClusterConfigState state = store.snapshot();
            say("replay_ms", (ended - begun) / 1e6);
            say("connectors", state.connectors().size());
            say("offset", state.offset());
            say("heap_mb", usedHeapMb());
            store.stop();
            admin.close(Duration.ofSeconds(1));
        }
    }

    private static void replayStatus(Map<String, String> options) {
        for (int round = 0; round < number(options, "rounds"); round++) {
            SharedTopicAdmin admin = new SharedTopicAdmin(new HashMap<>(worker(options)));
            long begun = System.nanoTime();
            KafkaStatusBackingStore store = statusStore(options, admin);
            store.start();
            long ended = System.nanoTime();
            say("replay_ms", (ended - begun) / 1e6);
            say("connectors", store.connectors().size());
            store.stop();
            admin.close(Duration.ofSeconds(1));
        }
    }

    // mode `tick`: callers hand their write to one thread and wait, as requests do to the herder's. mode `threads`:
    // every caller is on the store itself; with a transactional leader its transactions must not overlap, so a lock.
    private static void writes(Map<String, String> options) throws Exception {
        SharedTopicAdmin admin = new SharedTopicAdmin(new HashMap<>(worker(options)));
        KafkaConfigBackingStore store = configStore(options, admin);
        store.start();
        boolean transactional = "enabled".equals(options.get("exactly-once"));
        if (transactional) {
            store.claimWritePrivileges();
        }
        int callers = number(options, "callers");
        int each = number(options, "each");
        Map<String, String> config = connectorConfig(options);
        put(store, config, "warm-up", number(options, "warm-up"));
        ExecutorService tick = Executors.newSingleThreadExecutor();
        Object lock = new Object();
        CountDownLatch ready = new CountDownLatch(callers);
        CountDownLatch go = new CountDownLatch(1);
        long[][] latencies = new long[callers][each];
        List<Thread> threads = new ArrayList<>();
        AtomicInteger failures = new AtomicInteger();
        for (int caller = 0; caller < callers; caller++) {
            int self = caller;
            Thread thread = new Thread(() -> {
                try {
                    ready.countDown();
                    go.await();
                    for (int i = 0; i < each; i++) {
                        String name = "java-" + self + "-" + i;
                        long begun = System.nanoTime();
                        if ("tick".equals(options.get("mode"))) {
                            Future<?> done = tick.submit(() -> store.putConnectorConfig(name, named(config, name), null));
                            done.get();
                        } else if (transactional) {
                            synchronized (lock) {
                                store.putConnectorConfig(name, named(config, name), null);
                            }
                        } else {
                            store.putConnectorConfig(name, named(config, name), null);
                        }
                        latencies[self][i] = System.nanoTime() - begun;
                    }
                } catch (Exception e) {
                    failures.incrementAndGet();
                    e.printStackTrace();
                }
            });
            thread.start();
            threads.add(thread);
        }
        ready.await();
        long begun = System.nanoTime();
        go.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        say("total_ms", (System.nanoTime() - begun) / 1e6);
        say("failures", failures.get());
        StringBuilder line = new StringBuilder("latencies_us");
        for (long[] mine : latencies) {
            for (long latency : mine) {
                line.append(' ').append(latency / 1000);
            }
        }
        System.out.println(line);
    }

    private static void put(KafkaConfigBackingStore store, Map<String, String> config, String prefix, int count) {
        for (int i = 0; i < count; i++) {
            store.putConnectorConfig(prefix + i, named(config, prefix + i), null);
        }
    }

    // `fired`: all puts handed over, flushed, then looked at until the store itself shows the last of them, which is
    // when Connect would. `one-by-one`: the same for each single status before the next.
    private static void statuses(Map<String, String> options) throws Exception {
        SharedTopicAdmin admin = new SharedTopicAdmin(new HashMap<>(worker(options)));
        KafkaStatusBackingStore store = statusStore(options, admin);
        store.start();
        int tasks = number(options, "tasks");
        int rounds = number(options, "rounds");
        int generation = 0;
        for (int round = 0; round < rounds; round++) {
            generation++;
            long begun = System.nanoTime();
            for (int task = 0; task < tasks; task++) {
                store.put(status(task, generation));
            }
            store.flush();
            for (int task = 0; task < tasks; task++) {
                awaitShown(store, task, generation);
            }
            say("fired_ms", (System.nanoTime() - begun) / 1e6);
        }
        for (int round = 0; round < rounds; round++) {
            generation++;
            long begun = System.nanoTime();
            for (int task = 0; task < tasks; task++) {
                store.put(status(task, generation));
                awaitShown(store, task, generation);
            }
            say("one_by_one_ms", (System.nanoTime() - begun) / 1e6);
        }
        store.stop();
    }

    private static void awaitShown(KafkaStatusBackingStore store, int task, int generation) throws Exception {
        ConnectorTaskId id = taskId(task);
        while (true) {
            TaskStatus shown = store.get(id);
            if (shown != null && shown.generation() == generation) {
                return;
            }
            Thread.sleep(0, 100_000);
        }
    }

    private static ConnectorTaskId taskId(int task) {
        return new ConnectorTaskId("bench-" + task / 10, task % 10);
    }

    private static TaskStatus status(int task, int generation) {
        return new TaskStatus(taskId(task), AbstractStatus.State.RUNNING, WORKER, generation, null, "4.3.1");
    }

    private static Map<String, String> named(Map<String, String> config, String name) {
        Map<String, String> result = new HashMap<>(config);
        result.put("name", name);
        return result;
    }

    private static Map<String, String> connectorConfig(Map<String, String> options) {
        Map<String, String> config = new HashMap<>();
        for (String pair : options.get("config").split("\u0001")) {
            int equals = pair.indexOf('=');
            config.put(pair.substring(0, equals), pair.substring(equals + 1));
        }
        return config;
    }

    private static KafkaConfigBackingStore configStore(Map<String, String> options, SharedTopicAdmin admin) {
        KafkaConfigBackingStore store = new KafkaConfigBackingStore(converter(), new DistributedConfig(worker(options)),
            new WorkerConfigTransformer(null, Map.of()), admin, CLIENT_ID_BASE);
        store.setUpdateListener(new Silent());
        return store;
    }

    private static KafkaStatusBackingStore statusStore(Map<String, String> options, SharedTopicAdmin admin) {
        KafkaStatusBackingStore store = new KafkaStatusBackingStore(Time.SYSTEM, converter(), admin, CLIENT_ID_BASE);
        store.configure(new DistributedConfig(worker(options)));
        return store;
    }

    private static JsonConverter converter() {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false"), false);
        return converter;
    }

    private static Map<String, String> worker(Map<String, String> options) {
        Map<String, String> worker = new HashMap<>();
        worker.put("bootstrap.servers", options.get("bootstrap"));
        worker.put("group.id", options.getOrDefault("group", "java-bench"));
        worker.put("key.converter", "org.apache.kafka.connect.json.JsonConverter");
        worker.put("value.converter", "org.apache.kafka.connect.json.JsonConverter");
        worker.put("config.storage.topic", options.getOrDefault("topic", "java-bench-configs"));
        worker.put("status.storage.topic", options.getOrDefault("topic", "java-bench-status"));
        worker.put("offset.storage.topic", "java-bench-offsets");
        worker.put("config.storage.replication.factor", "1");
        worker.put("status.storage.replication.factor", "1");
        worker.put("exactly.once.source.support", options.getOrDefault("exactly-once", "disabled"));
        return worker;
    }

    private static int number(Map<String, String> options, String name) {
        return Integer.parseInt(options.get(name));
    }

    private static double usedHeapMb() {
        System.gc();
        Runtime runtime = Runtime.getRuntime();
        return (runtime.totalMemory() - runtime.freeMemory()) / 1e6;
    }

    private static void say(String name, Object value) {
        System.out.println(name + " " + value);
    }

    private static final class Silent implements ConfigBackingStore.UpdateListener {
        @Override public void onConnectorConfigRemove(String connector) { }
        @Override public void onConnectorConfigUpdate(String connector) { }
        @Override public void onTaskConfigUpdate(Collection<ConnectorTaskId> tasks) { }
        @Override public void onConnectorTargetStateChange(String connector) { }
        @Override public void onSessionKeyUpdate(SessionKey key) { }
        @Override public void onRestartRequest(RestartRequest request) { }
        @Override public void onLoggingLevelUpdate(String namespace, String level) { }
    }
}
