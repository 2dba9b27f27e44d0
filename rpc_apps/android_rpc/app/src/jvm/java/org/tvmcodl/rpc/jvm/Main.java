package org.tvmcodl.rpc.jvm;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.util.Arrays;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.tvmcodl.rpc.serve.Loop;
import org.tvmcodl.rpc.serve.SessionProcess;
import org.tvmcodl.rpc.serve.Settings;
import org.tvmcodl.rpc.serve.SettingsError;
import org.tvmcodl.rpc.serve.Status;
import org.tvmcodl.rpc.serve.Supervisor;

/**
 * The app's server without Android: {@code Main MODE ADDRESS PORT KEY LIMIT_S FOLDER}.
 *
 * <p>Prints each status as a line, and serves until its input ends.
 */
public final class Main {
    private Main() {}

    public static void main(String[] words) throws Exception {
        if (words.length != 6) {
            System.err.println("Main MODE ADDRESS PORT KEY LIMIT_S FOLDER");
            System.exit(2);
        }
        Settings settings = settings(words);
        File folder = new File(words[5]);
        // Drops late events of a session's process.
        ScheduledThreadPoolExecutor thread =
                new ScheduledThreadPoolExecutor(1, new ThreadPoolExecutor.DiscardPolicy());
        thread.setRemoveOnCancelPolicy(true);
        Loop loop = (millis, what) -> {
            Future<?> planned = thread.schedule(watched(what), millis, TimeUnit.MILLISECONDS);
            return () -> planned.cancel(false);
        };
        SessionProcess.Starter starter = (chosen, listener) -> new ChildProcess(chosen, folder, loop, listener);
        Supervisor supervisor = new Supervisor(loop, starter, Main::print);
        thread.execute(watched(() -> supervisor.start(settings)));
        waitForEnd(System.in);
        thread.submit(supervisor::stop).get();
        thread.shutdownNow();
    }

    private static Settings settings(String[] words) {
        try {
            return Settings.parse(Arrays.copyOf(words, 5));
        } catch (SettingsError error) {
            System.err.println(error.field + ": " + error.getMessage());
            System.exit(2);
            throw new AssertionError(error);
        }
    }

    /** Executors swallow exceptions; one on the supervisor's thread is a bug and ends the program. */
    private static Runnable watched(Runnable what) {
        return () -> {
            try {
                what.run();
            } catch (RuntimeException | Error error) {
                error.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        };
    }

    private static void print(Status status) {
        System.out.println(status);
        System.out.flush();
    }

    static void waitForEnd(InputStream in) throws IOException {
        while (in.read() >= 0) {
            // whatever it holds
        }
    }
}
