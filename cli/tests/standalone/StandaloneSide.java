import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.runtime.standalone.StandaloneConfig;
import org.apache.kafka.connect.storage.FileOffsetBackingStore;

/**
 * What Java makes of the files of standalone mode, one question after the other: a line with its name, the number of
 * lines it gives and its arguments, then those lines. The answer ends with a line ".". Every text goes in and out as
 * hex digits.
 */
public final class StandaloneSide {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] question = line.split(" ");
            List<String> given = new ArrayList<>();
            for (int left = Integer.parseInt(question[1]); left > 0; left--) {
                given.add(in.readLine());
            }
            switch (question[0]) {
                case "properties" -> properties(given, out);
                case "set" -> set(given, text(question[2]));
                case "get" -> get(given, text(question[2]), text(question[3]), out);
                default -> throw new IllegalArgumentException(line);
            }
            out.println(".");
            out.flush();
        }
    }

    private static String text(String hex) {
        return new String(HEX.parseHex(hex), StandardCharsets.UTF_8);
    }

    /** Each line is a file; each line of the answer its properties, sorted, or "refused". */
    private static void properties(List<String> files, PrintStream out) throws Exception {
        for (String file : files) {
            Properties found = new Properties();
            try {
                found.load(new ByteArrayInputStream(HEX.parseHex(file)));
            } catch (IllegalArgumentException refused) {
                out.println("refused");
                continue;
            }
            StringBuilder said = new StringBuilder();
            new TreeMap<>(found).forEach((key, value) -> said.append(utf16(key)).append('=').append(utf16(value)).append(' '));
            out.println(said);
        }
    }

    private static String utf16(Object text) {
        String given = (String) text;
        ByteBuffer units = ByteBuffer.allocate(given.length() * 2);
        given.chars().forEach(unit -> units.putChar((char) unit));
        return HEX.formatHex(units.array());
    }

    /** Stores pairs, `key value` or `key -`, with Connect's own file store. */
    private static void set(List<String> pairs, String file) throws Exception {
        FileOffsetBackingStore store = open(file);
        Map<ByteBuffer, ByteBuffer> values = new HashMap<>();
        for (String line : pairs) {
            String[] pair = line.split(" ");
            values.put(bytes(pair[0]), pair[1].equals("-") ? null : bytes(pair[1]));
        }
        store.set(values, null).get();
        store.stop();
    }

    /** Answers each key with its value or `-`, then the partitions of a connector. */
    private static void get(List<String> keys, String file, String connector, PrintStream out) throws Exception {
        FileOffsetBackingStore store = open(file);
        for (String key : keys) {
            ByteBuffer value = store.get(List.of(bytes(key))).get().get(bytes(key));
            out.println(value == null ? "-" : HEX.formatHex(value.array()));
        }
        out.println(new TreeMap<>(Map.of("partitions", store.connectorPartitions(connector).size())));
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
}
