package org.tvmcodl.rpc.jvm;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.tvmcodl.rpc.serve.Loop;
import org.tvmcodl.rpc.serve.SessionEvent;
import org.tvmcodl.rpc.serve.SessionProcess;
import org.tvmcodl.rpc.serve.Settings;

/** A session in a JVM of its own, which prints its events. */
final class ChildProcess implements SessionProcess {
    /** In front of each event, as libraries print too. */
    static final String MARK = "session: ";

    private final Process process;

    ChildProcess(Settings settings, File folder, Loop loop, Listener listener) throws IOException {
        List<String> command = new ArrayList<>();
        command.add(new File(System.getProperty("java.home"), "bin/java").getPath());
        // For one client a small JVM that starts quickly.
        command.addAll(Arrays.asList("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"));
        command.addAll(Arrays.asList("-XX:-CreateCoredumpOnCrash", "-XX:ErrorFile=" + new File(folder, "died.log")));
        command.addAll(JvmDescriptors.OPTIONS);
        for (String name : new String[] {"java.library.path", "libtvm.so.path"}) {
            command.add("-D" + name + "=" + System.getProperty(name, ""));
        }
        command.addAll(Arrays.asList("-cp", System.getProperty("java.class.path"), SessionMain.class.getName()));
        command.addAll(Arrays.asList(settings.words()));
        command.add(new File(folder, "session").getPath());
        process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        Thread reader = new Thread(() -> read(loop, listener), "session-output");
        reader.setDaemon(true);
        reader.start();
    }

    @Override
    public void kill() {
        process.destroyForcibly();
    }

    private void read(Loop loop, Listener listener) {
        try (BufferedReader lines =
                new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (line.startsWith(MARK)) {
                    SessionEvent event = SessionEvent.parse(line.substring(MARK.length()));
                    loop.after(0, () -> listener.said(event));
                }
            }
        } catch (IOException | IllegalArgumentException error) {
            System.err.println("the session's output ends: " + error.getMessage());
        }
        try {
            int code = process.waitFor();
            loop.after(0, () -> listener.ended("exit code " + code));
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
