package org.apache.kafka.connect.mirror;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * What MirrorMaker's own replication policies and its source connector make of topic names: a config with `names` comes
 * in a line, one line of answers goes out. In the connector's package, for its test constructor.
 */
public final class MirrorNames {
    private static final ObjectMapper JSON = new ObjectMapper();

    private MirrorNames() { }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println("VECTOR " + JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
        System.exit(0);
    }

    private static Map<String, Object> answer(JsonNode asked) throws Exception {
        Map<String, String> config = new HashMap<>();
        asked.get("config").fields().forEachRemaining(one -> config.put(one.getKey(), one.getValue().asText()));
        String policyClass = config.get("replication.policy.class");
        DefaultReplicationPolicy policy = policyClass.endsWith("IdentityReplicationPolicy")
            ? new IdentityReplicationPolicy() : new DefaultReplicationPolicy();
        policy.configure(config);
        DefaultTopicFilter filter = new DefaultTopicFilter();
        filter.configure(config);
        MirrorSourceConnector connector = new MirrorSourceConnector(
            new SourceAndTarget(config.get("source.cluster.alias"), config.get("target.cluster.alias")),
            policy, filter, new DefaultConfigPropertyFilter());
        List<Object> names = new ArrayList<>();
        for (JsonNode name : asked.get("names")) {
            String topic = name.asText();
            names.add(List.of(
                topic, policy.formatRemoteTopic(config.get("source.cluster.alias"), topic),
                policy.isHeartbeatsTopic(topic), policy.isInternalTopic(topic), connector.isCycle(topic),
                connector.shouldReplicateTopic(topic)));
        }
        Map<String, Object> said = new HashMap<>();
        said.put("config", config);
        said.put("offset_syncs", policy.offsetSyncsTopic(config.get("target.cluster.alias")));
        said.put("checkpoints", policy.checkpointsTopic(config.get("source.cluster.alias")));
        said.put("names", names);
        return said;
    }
}
