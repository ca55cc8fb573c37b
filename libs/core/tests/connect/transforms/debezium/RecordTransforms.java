import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;

/** Runs transformations over cases, a JSON object a line on stdin; prints each with its output or error. */
public class RecordTransforms {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonConverter CONVERTER = new JsonConverter();

    public static void main(String[] args) throws Exception {
        CONVERTER.configure(Map.of("schemas.enable", "true", "replace.null.with.default", "false"), false);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode found = (ObjectNode) JSON.readTree(line);
            if (found.has("input")) {
                answer(found);
            } else {
                define(found);
            }
            System.out.println("VECTOR " + JSON.writeValueAsString(found));
        }
    }

    private static void define(ObjectNode found) throws Exception {
        ConfigDef definition = made(found).config();
        ArrayNode keys = found.putArray("definition");
        for (String name : definition.names()) {
            ConfigDef.ConfigKey key = definition.configKeys().get(name);
            ObjectNode told = keys.addObject();
            told.put("name", name).put("type", key.type.name()).put("importance", key.importance.name());
            told.put("documentation", key.documentation).put("display", key.displayName).put("width", key.width.name());
            told.put("group", key.group).put("order", key.orderInGroup).put("required", !key.hasDefault());
            told.put("default", key.hasDefault() && key.defaultValue != null ? String.valueOf(key.defaultValue) : null);
        }
    }

    @SuppressWarnings("unchecked")
    private static Transformation<SourceRecord> made(ObjectNode found) throws Exception {
        return (Transformation<SourceRecord>) Class.forName(found.get("transform").asText())
                .getDeclaredConstructor().newInstance();
    }

    private static void answer(ObjectNode found) throws Exception {
        Transformation<SourceRecord> transform = made(found);
        String phase = "configure";
        try {
            Map<String, String> config = new LinkedHashMap<>();
            found.get("config").fields().forEachRemaining(one -> config.put(one.getKey(), one.getValue().asText()));
            transform.configure(config);
            phase = "apply";
            SourceRecord after = transform.apply(record(found.get("input")));
            found.set("output", after == null ? JSON.nullNode() : told(after));
        } catch (Exception | NoClassDefFoundError error) {
            ObjectNode why = found.putObject("error");
            why.put("phase", phase).put("class", error.getClass().getName()).put("message", error.getMessage());
        }
    }

    private static SourceRecord record(JsonNode told) throws Exception {
        SchemaAndValue key = read(told.get("keySchema"), told.get("key"));
        SchemaAndValue value = read(told.get("valueSchema"), told.get("value"));
        SourceRecord record = new SourceRecord(Map.of("file", "a"), Map.of("pos", 1L), told.get("topic").asText(),
                told.get("partition").isNull() ? null : told.get("partition").asInt(), key.schema(), key.value(),
                value.schema(), value.value(), told.get("timestamp").isNull() ? null : told.get("timestamp").asLong());
        for (JsonNode header : told.get("headers")) {
            record.headers().add(header.get("key").asText(), read(header.get("schema"), header.get("value")));
        }
        return record;
    }

    private static ObjectNode told(SourceRecord record) throws Exception {
        ObjectNode told = JSON.createObjectNode();
        told.put("kind", "source").put("topic", record.topic()).put("partition", record.kafkaPartition());
        write(told, "keySchema", "key", record.keySchema(), record.key());
        write(told, "valueSchema", "value", record.valueSchema(), record.value());
        told.put("timestamp", record.timestamp());
        ArrayNode headers = told.putArray("headers");
        for (Header header : record.headers()) {
            write(headers.addObject().put("key", header.key()), "schema", "value", header.schema(), header.value());
        }
        return told;
    }

    private static SchemaAndValue read(JsonNode schema, JsonNode value) throws Exception {
        if (schema.isNull() && value.isNull()) {
            return SchemaAndValue.NULL;
        }
        ObjectNode envelope = JSON.createObjectNode();
        envelope.set("schema", schema);
        envelope.set("payload", value);
        if (value.isNull()) {
            return new SchemaAndValue(CONVERTER.asConnectSchema(schema), null);
        }
        return CONVERTER.toConnectData("t", JSON.writeValueAsBytes(envelope));
    }

    private static void write(ObjectNode into, String schemaName, String valueName, Schema schema, Object value)
            throws Exception {
        into.set(schemaName, schema == null ? JSON.nullNode() : CONVERTER.asJsonSchema(schema));
        if (value == null) {
            into.set(valueName, JSON.nullNode());
            return;
        }
        into.set(valueName, JSON.readTree(CONVERTER.fromConnectData("t", schema, value)).get("payload"));
    }
}
