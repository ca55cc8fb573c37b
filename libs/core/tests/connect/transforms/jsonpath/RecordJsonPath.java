import com.jayway.jsonpath.Configuration;
import com.jayway.jsonpath.JsonPath;
import com.jayway.jsonpath.Option;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** Matches of Jayway's JsonPath: on stdin pairs of lines, a path and a JSON text; prints the count, or an error. */
public class RecordJsonPath {
    public static void main(String[] args) throws Exception {
        Configuration lists = Configuration.builder().options(Option.ALWAYS_RETURN_LIST).build();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String path = lines.readLine(); path != null; path = lines.readLine()) {
            String json = lines.readLine();
            String found;
            try {
                JsonPath compiled = JsonPath.compile(path);
                try {
                    List<Object> values = JsonPath.using(lists).parse(json).read(compiled);
                    found = Integer.toString(values.size());
                } catch (RuntimeException error) {
                    found = "\"" + error.getClass().getSimpleName() + "\"";
                }
            } catch (RuntimeException error) {
                found = "\"refused\"";
            }
            System.out.println("FOUND " + found);
        }
    }
}
