import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.TreeSet;
import org.apache.kafka.connect.connector.Connector;

/** Prints the keys of each connector class it is given: of its ConfigDef, and of Debezium's own Field constants. */
public class PublishedKeys {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            Connector connector = (Connector) Class.forName(name).getDeclaredConstructor().newInstance();
            TreeSet<String> keys = new TreeSet<>(connector.config().names());
            for (String config : System.getProperty("fields", "").split(",")) {
                for (Class<?> cls = config.isEmpty() ? null : Class.forName(config); cls != null; cls = cls.getSuperclass()) {
                    for (Field field : cls.getDeclaredFields()) {
                        if (Modifier.isStatic(field.getModifiers()) && field.getType().getName().equals("io.debezium.config.Field")) {
                            field.setAccessible(true);
                            keys.add((String) field.getType().getMethod("name").invoke(field.get(null)));
                        }
                    }
                }
            }
            for (String key : keys) {
                System.out.println(name + "\t" + key);
            }
        }
    }
}
