import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.avro.Schema;

/** Prints for each line, a schema, the result of Avro's own parser: its text, or "refused". */
public class AvroNames {
  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, false, "UTF-8");
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String told;
      try {
        told = new Schema.Parser().setValidateDefaults(false).parse(line).toString();
      } catch (Exception refused) {
        told = "refused " + refused;
      }
      out.println(told.replace('\n', ' '));
    }
    out.flush();
  }
}
