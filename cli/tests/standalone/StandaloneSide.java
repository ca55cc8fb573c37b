import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.runtime.standalone.StandaloneConfig;
import org.apache.kafka.connect.storage.FileOffsetBackingStore;

/** What Java makes of the files of standalone mode. Every text goes in and out as hex digits. */
public final class StandaloneSide {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "properties" -> properties();
            case "set" -> set(args[1]);
            case "get" -> get(args[1], args[2]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    /** Each line of input is a file; each line of output its properties, sorted, or "refused". */
    private static void properties() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Properties found = new Properties();
            try {
                found.load(new ByteArrayInputStream(HEX.parseHex(line)));
            } catch (IllegalArgumentException refused) {
                System.out.println("refused");
                continue;
            }
            StringBuilder out = new StringBuilder();
            new TreeMap<>(found).forEach((key, value) -> out.append(utf16(key)).append('=').append(utf16(value)).append(' '));
            System.out.println(out);
        }
    }

    private static String utf16(Object text) {
        String given = (String) text;
        ByteBuffer units = ByteBuffer.allocate(given.length() * 2);
        given.chars().forEach(unit -> units.putChar((char) unit));
        return HEX.formatHex(units.array());
    }

    /** Stores the pairs of the input, `key value` or `key -`, with Connect's own file store. */
    private static void set(String file) throws Exception {
        FileOffsetBackingStore store = open(file);
        Map<ByteBuffer, ByteBuffer> values = new HashMap<>();
        for (String line : lines()) {
            String[] pair = line.split(" ");
            values.put(bytes(pair[0]), pair[1].equals("-") ? null : bytes(pair[1]));
        }
        store.set(values, null).get();
        store.stop();
    }

    /** Answers each key of the input with its value or `-`, then the partitions of a connector. */
    private static void get(String file, String connector) throws Exception {
        FileOffsetBackingStore store = open(file);
        for (String line : lines()) {
            ByteBuffer value = store.get(List.of(bytes(line))).get().get(bytes(line));
            System.out.println(value == null ? "-" : HEX.formatHex(value.array()));
        }
        System.out.println(new TreeMap<>(Map.of("partitions", store.connectorPartitions(connector).size())));
        store.stop();
    }

    private static FileOffsetBackingStore open(String file) {
        JsonConverter keys = new JsonConverter();
        keys.configure(Map.of("schemas.enable", "false"), true);
        FileOffsetBackingStore store = new FileOffsetBackingStore(keys);
        store.configure(new StandaloneConfig(Map.of(
            "bootstrap.servers", "127.0.0.1:1",
            "key.converter", JsonConverter.class.getName(),
            "value.converter", JsonConverter.class.getName(),
            StandaloneConfig.OFFSET_STORAGE_FILE_FILENAME_CONFIG, file)));
        store.start();
        return store;
    }

    private static ByteBuffer bytes(String hex) {
        return ByteBuffer.wrap(HEX.parseHex(hex));
    }

    private static List<String> lines() throws Exception {
        return new String(System.in.readAllBytes(), StandardCharsets.US_ASCII).lines().toList();
    }
}
