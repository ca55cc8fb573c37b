import java.io.PrintStream;
import java.util.HexFormat;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.MessageFormatter;
import org.apache.kafka.connect.mirror.formatters.CheckpointFormatter;
import org.apache.kafka.connect.mirror.formatters.OffsetSyncFormatter;

/**
 * Prints records of MirrorMaker's topics with Java's own formatters, those of kafka-console-consumer. Arguments, for
 * each record: `sync` or `checkpoint`, key and value as hexadecimal numbers.
 */
public final class MirrorLines {
    public static void main(String[] args) {
        PrintStream out = System.out;
        for (int at = 0; at < args.length; at += 3) {
            byte[] key = HexFormat.of().parseHex(args[at + 1]);
            byte[] value = HexFormat.of().parseHex(args[at + 2]);
            try (MessageFormatter printer = args[at].equals("sync") ? new OffsetSyncFormatter() : new CheckpointFormatter()) {
                printer.writeTo(new ConsumerRecord<>("internal", 0, 0, key, value), out);
            }
        }
    }
}
