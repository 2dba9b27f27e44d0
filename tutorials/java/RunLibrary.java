import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.apache.tvm.Device;
import org.apache.tvm.Module;
import org.apache.tvm.NDArray;
import org.apache.tvm.TVMType;
import org.apache.tvm.contrib.GraphModule;

/**
 * Runs the network that export.py wrote: {@code java RunLibrary FOLDER}.
 *
 * <p>Writes the output beside it, prints how far it is from onnxruntime's answer and how long a run takes, and ends with 4
 * where it is too far.
 */
public final class RunLibrary {
    private static final TVMType FLOAT = new TVMType("float32");
    private static final int RUNS = 11;

    /** Of onnxruntime's largest number; two programs add up floats in different orders. */
    private static final double TOLERANCE = 1e-4;

    private RunLibrary() {}

    public static void main(String[] words) throws IOException {
        Path folder = Path.of(words[0]);
        List<String> about = Files.readAllLines(folder.resolve("about.txt"));
        Device cpu = Device.cpu();

        Module library = Module.load(folder.resolve("network.so").toString());
        Module network = library.getFunction("default").pushArg(cpu).invoke().asModule();
        GraphModule executor = new GraphModule(network, cpu);

        NDArray input = NDArray.empty(shape(about.get(1)), FLOAT, cpu);
        input.copyFrom(floats(folder.resolve("input.bin")));
        NDArray output = NDArray.empty(shape(about.get(2)), FLOAT, cpu);
        double[] millis = new double[RUNS];
        for (int i = 0; i < RUNS; i++) {
            long start = System.nanoTime();
            executor.setInput(about.get(0), input).run().getOutput(0, output);
            millis[i] = (System.nanoTime() - start) / 1e6;
        }
        Arrays.sort(millis);

        float[] got = output.asFloatArray();
        write(folder.resolve("output.bin"), got);
        float[] expected = floats(folder.resolve("expected.bin"));
        double error = 0;
        double largest = 0;
        for (int i = 0; i < got.length; i++) {
            error = Math.max(error, Math.abs(got[i] - expected[i]));
            largest = Math.max(largest, Math.abs(expected[i]));
        }
        System.out.printf("%d numbers, max_abs_err %.3g, %.3f ms%n", got.length, error, millis[RUNS / 2]);
        // Not "error > ...": that is false for NaN.
        if (!(error <= TOLERANCE * largest)) {
            System.exit(4);
        }
    }

    private static long[] shape(String words) {
        return Arrays.stream(words.split(" ")).mapToLong(Long::parseLong).toArray();
    }

    private static float[] floats(Path path) throws IOException {
        ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(path)).order(ByteOrder.LITTLE_ENDIAN);
        float[] numbers = new float[bytes.remaining() / Float.BYTES];
        bytes.asFloatBuffer().get(numbers);
        return numbers;
    }

    private static void write(Path path, float[] numbers) throws IOException {
        ByteBuffer bytes = ByteBuffer.allocate(numbers.length * Float.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        bytes.asFloatBuffer().put(numbers);
        Files.write(path, bytes.array());
    }
}
