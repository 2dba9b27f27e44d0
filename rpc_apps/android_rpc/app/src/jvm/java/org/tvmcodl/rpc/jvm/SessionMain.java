package org.tvmcodl.rpc.jvm;

import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.util.Arrays;
import org.tvmcodl.rpc.serve.Session;
import org.tvmcodl.rpc.serve.Settings;

/** The child's side of {@link ChildProcess}: serves one client and ends. */
public final class SessionMain {
    private SessionMain() {}

    public static void main(String[] words) throws Exception {
        Settings settings = Settings.parse(Arrays.copyOf(words, 5));
        PrintStream events = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        Thread watch = new Thread(SessionMain::endWithParent, "parent-watch");
        watch.setDaemon(true);
        watch.start();
        Session.run(settings, new File(words[5]), new JvmDescriptors(), event -> {
            // In one call and on a line of its own, whatever libraries print.
            events.print("\n" + ChildProcess.MARK + event.line() + "\n");
            events.flush();
        });
        // Not exit(), whose hooks would wait for native threads of a client's code.
        Runtime.getRuntime().halt(0);
    }

    private static void endWithParent() {
        try {
            Main.waitForEnd(System.in);
        } catch (IOException error) {
            // the same as its end
        }
        Runtime.getRuntime().halt(3);
    }
}
