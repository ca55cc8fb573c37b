import java.time.Duration;
import java.util.Map;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * View of a target cluster by Java's own RemoteClusterUtils, which applications of MirrorMaker's users call: each
 * source that heartbeats come from, with its hops, and the translated offsets of one source's groups. Arguments:
 * brokers, alias, groups.
 */
public final class MirrorSide {
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    public static void main(String[] args) throws Exception {
        Map<String, Object> target = Map.of("bootstrap.servers", args[0]);
        for (String cluster : RemoteClusterUtils.upstreamClusters(target)) {
            System.out.println("cluster " + cluster + " " + RemoteClusterUtils.replicationHops(target, cluster));
        }
        for (int number = 2; number < args.length; number++) {
            String group = args[number];
            RemoteClusterUtils.translateOffsets(target, args[1], group, PATIENCE).forEach((place, at) ->
                System.out.println("group " + group + " " + place.topic() + " " + place.partition() + " " + at.offset()));
        }
    }
}
