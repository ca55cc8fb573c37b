import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import javax.crypto.spec.SecretKeySpec;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.runtime.AbstractStatus;
import org.apache.kafka.connect.runtime.ConnectorStatus;
import org.apache.kafka.connect.runtime.RestartRequest;
import org.apache.kafka.connect.runtime.SessionKey;
import org.apache.kafka.connect.runtime.TargetState;
import org.apache.kafka.connect.runtime.TaskStatus;
import org.apache.kafka.connect.runtime.TopicStatus;
import org.apache.kafka.connect.runtime.WorkerConfigTransformer;
import org.apache.kafka.connect.runtime.distributed.DistributedConfig;
import org.apache.kafka.connect.storage.ClusterConfigState;
import org.apache.kafka.connect.storage.ConfigBackingStore;
import org.apache.kafka.connect.storage.KafkaConfigBackingStore;
import org.apache.kafka.connect.storage.KafkaStatusBackingStore;
import org.apache.kafka.connect.util.ConnectorTaskId;
import org.apache.kafka.connect.util.SharedTopicAdmin;

/**
 * Connect's own two backing stores, driven line by line: a JSON object of an operation comes in on standard input, one
 * JSON line goes out. Owns no comparison. Arguments: brokers, config topic, status topic.
 */
public final class StoresSide {
    private static final ObjectMapper JSON = new ObjectMapper();
    /** Its status is written last before the statuses are shown, so that all before it has been read. */
    private static final String MARKER = "marker";

    private final KafkaConfigBackingStore configs;
    private final KafkaStatusBackingStore statuses;
    /** Calls of the listener since the last `show`. */
    private final List<Object> told = new ArrayList<>();
    private int markers;

    private StoresSide(Map<String, String> worker) {
        SharedTopicAdmin admin = new SharedTopicAdmin(new HashMap<>(worker));
        DistributedConfig config = new DistributedConfig(worker);
        configs = new KafkaConfigBackingStore(converter(), config, new WorkerConfigTransformer(null, Map.of()), admin, "side-");
        configs.setUpdateListener(new Listener());
        statuses = new KafkaStatusBackingStore(Time.SYSTEM, converter(), admin, "side-");
        statuses.configure(config);
        configs.start();
        statuses.start();
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> worker = new HashMap<>();
        worker.put("bootstrap.servers", args[0]);
        worker.put("group.id", "java-side");
        worker.put("key.converter", "org.apache.kafka.connect.json.JsonConverter");
        worker.put("value.converter", "org.apache.kafka.connect.json.JsonConverter");
        worker.put("config.storage.topic", args[1]);
        worker.put("status.storage.topic", args[2]);
        worker.put("offset.storage.topic", "java-side-offsets");
        worker.put("config.storage.replication.factor", "1");
        worker.put("status.storage.replication.factor", "1");
        worker.put("status.storage.partitions", "1");
        worker.put("isolation.level", "read_committed");
        StoresSide side = new StoresSide(worker);
        System.out.println("{}");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(JSON.writeValueAsString(side.play(JSON.readTree(line))));
        }
        Runtime.getRuntime().halt(0);
    }

    private Object play(JsonNode operation) throws Exception {
        String name = operation.path("name").asText();
        switch (operation.path("do").asText()) {
            case "config" -> configs.putConnectorConfig(name, properties(operation.path("config")), target(operation));
            case "remove" -> configs.removeConnectorConfig(name);
            case "tasks" -> {
                List<Map<String, String>> tasks = new ArrayList<>();
                operation.path("tasks").forEach(task -> tasks.add(properties(task)));
                configs.putTaskConfigs(name, tasks);
            }
            case "target" -> configs.putTargetState(name, target(operation));
            case "count" -> configs.putTaskCountRecord(name, operation.path("count").asInt());
            case "status" -> status(name, operation);
            case "restart" -> configs.putRestartRequest(
                new RestartRequest(name, operation.path("only_failed").asBoolean(), operation.path("include_tasks").asBoolean()));
            case "session_key" -> configs.putSessionKey(new SessionKey(
                new SecretKeySpec(Base64.getDecoder().decode(operation.path("key").asText()), "HmacSHA256"),
                operation.path("created").asLong()));
            case "logger" -> configs.putLoggerLevel(name, operation.path("level").asText());
            case "topic" -> {
                statuses.put(new TopicStatus(
                    operation.path("topic").asText(), new ConnectorTaskId(name, operation.path("task").asInt()),
                    operation.path("discovered").asLong()));
                statuses.flush();
            }
            case "forget" -> {
                statuses.deleteTopic(name, operation.path("topic").asText());
                statuses.flush();
            }
            case "show" -> {
                return show(operation.path("names"));
            }
            default -> throw new IllegalArgumentException(operation.toString());
        }
        return Map.of();
    }

    private void status(String name, JsonNode operation) {
        try {
            put(name, operation);
        } catch (NullPointerException error) {
            // Java's safe put over a status without a worker: nothing is written.
        }
        statuses.flush();
    }

    private void put(String name, JsonNode operation) {
        AbstractStatus.State state = AbstractStatus.State.valueOf(operation.path("state").asText());
        String worker = operation.path("worker").asText();
        int generation = operation.path("generation").asInt();
        boolean safe = operation.path("safe").asBoolean();
        if (operation.has("task")) {
            TaskStatus status = new TaskStatus(
                new ConnectorTaskId(name, operation.path("task").asInt()), state, worker, generation, null, "4.3.1");
            if (safe) {
                statuses.putSafe(status);
            } else {
                statuses.put(status);
            }
        } else {
            ConnectorStatus status = new ConnectorStatus(name, state, null, worker, generation, "4.3.1");
            if (safe) {
                statuses.putSafe(status);
            } else {
                statuses.put(status);
            }
        }
    }

    private Map<String, Object> show(JsonNode names) throws Exception {
        configs.refresh(30, TimeUnit.SECONDS);
        awaitStatuses();
        ClusterConfigState state = configs.snapshot();
        Map<String, Object> shown = new TreeMap<>();
        names.forEach(node -> {
            String name = node.asText();
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("config", state.rawConnectorConfig(name));
            one.put("target", state.targetState(name) == null ? null : state.targetState(name).name());
            one.put("tasks", tasks(state, name));
            one.put("count", state.taskCount(name));
            one.put("pending", state.pendingFencing(name));
            one.put("record", state.taskCountRecord(name));
            one.put("inconsistent", state.inconsistentConnectors().contains(name));
            one.put("applied", applied(state, name));
            one.put("status", status(statuses.get(name)));
            Map<String, Object> tasks = new TreeMap<>();
            for (TaskStatus task : statuses.getAll(name)) {
                tasks.put(Integer.toString(task.id().task()), status(task));
            }
            one.put("task_statuses", tasks);
            Map<String, Object> topics = new TreeMap<>();
            for (TopicStatus topic : statuses.getAllTopics(name)) {
                topics.put(topic.topic(), List.of(topic.connector(), topic.task(), topic.discoverTimestamp()));
            }
            one.put("topics", topics);
            shown.put(name, one);
        });
        SessionKey key = state.sessionKey();
        synchronized (told) {
            shown.put("session key", key == null ? List.of() : List.of(
                Base64.getEncoder().encodeToString(key.key().getEncoded()), key.key().getAlgorithm(), key.creationTimestamp()));
            shown.put("told", new ArrayList<>(told));
            told.clear();
        }
        return shown;
    }

    /** Java cannot list them where a foreign commit record has a negative count. */
    private static List<Map<String, String>> tasks(ClusterConfigState state, String name) {
        try {
            return state.tasks(name).stream().map(state::rawTaskConfig).toList();
        } catch (IllegalArgumentException error) {
            return List.of();
        }
    }

    /** Java cannot return it for a foreign config with values that are no texts. */
    private static Object applied(ClusterConfigState state, String name) {
        try {
            return state.appliedConnectorConfig(name);
        } catch (ClassCastException error) {
            return "ClassCastException";
        }
    }

    private void awaitStatuses() throws Exception {
        markers++;
        statuses.put(new ConnectorStatus(MARKER, AbstractStatus.State.RUNNING, null, "side:1", markers, "4.3.1"));
        statuses.flush();
        while (statuses.get(MARKER) == null || statuses.get(MARKER).generation() != markers) {
            Thread.sleep(2);
        }
    }

    private static List<Object> status(AbstractStatus<?> status) {
        if (status == null) {
            return null;
        }
        List<Object> shown = new ArrayList<>();
        shown.add(status.state().name());
        shown.add(status.workerId());
        shown.add(status.generation());
        shown.add(status.version());
        return shown;
    }

    private static TargetState target(JsonNode operation) {
        return operation.hasNonNull("target") ? TargetState.valueOf(operation.path("target").asText()) : null;
    }

    private static Map<String, String> properties(JsonNode node) {
        Map<String, String> properties = new HashMap<>();
        node.fields().forEachRemaining(entry -> properties.put(entry.getKey(), entry.getValue().asText()));
        return properties;
    }

    private static JsonConverter converter() {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false"), false);
        return converter;
    }

    private final class Listener implements ConfigBackingStore.UpdateListener {
        @Override public void onConnectorConfigRemove(String connector) { }
        @Override public void onConnectorConfigUpdate(String connector) { }
        @Override public void onTaskConfigUpdate(Collection<ConnectorTaskId> tasks) { }
        @Override public void onConnectorTargetStateChange(String connector) { }
        @Override public void onSessionKeyUpdate(SessionKey key) { }
        @Override public void onRestartRequest(RestartRequest request) {
            note(List.of("restart", request.connectorName(), request.onlyFailed(), request.includeTasks()));
        }
        @Override public void onLoggingLevelUpdate(String namespace, String level) {
            note(List.of("logger", namespace, level));
        }

        private void note(List<Object> event) {
            synchronized (told) {
                told.add(event);
            }
        }
    }
}
