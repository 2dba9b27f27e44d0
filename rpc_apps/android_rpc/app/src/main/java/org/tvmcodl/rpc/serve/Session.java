package org.tvmcodl.rpc.serve;

import java.io.File;
import java.io.IOException;
import java.net.Socket;

/** The work of a session's process, which ends after it. */
public final class Session {
    /** Receives the session's events. */
    public interface EventListener {
        void receive(SessionEvent event);
    }

    /** Gives a connected socket's descriptor, in blocking mode, to native code, which closes it. */
    public interface Descriptors {
        int of(Socket socket) throws IOException;
    }

    private Session() {}

    /** Serves one client; never throws.  The client's files go to {@code folder}, which is emptied first. */
    public static void run(Settings settings, File folder, Descriptors descriptors, EventListener events) {
        try (Listener listener = Listener.of(settings)) {
            System.setProperty("java.io.tmpdir", empty(folder).getPath());
            // Before a client comes: a phone without the native library must not register.
            NativeSession.load();
            Client client = listener.accept(events);
            if (client == null) {
                events.receive(new SessionEvent(SessionEvent.Kind.RENEW, "nobody came"));
                return;
            }
            int limit = client.limitSeconds(settings.limitSeconds);
            events.receive(new SessionEvent(SessionEvent.Kind.SERVING, limit, client.from));
            NativeSession.serve(descriptors.of(client.socket), folder);
            events.receive(new SessionEvent(SessionEvent.Kind.FINISHED, client.from));
        } catch (Throwable error) { // also Errors, such as a missing library
            String message = error.getMessage() == null ? error.toString() : error.getMessage();
            events.receive(new SessionEvent(SessionEvent.Kind.FAILED, message));
        }
    }

    /** A session that was killed leaves its files behind. */
    private static File empty(File folder) throws IOException {
        remove(folder);
        if (!folder.mkdirs()) {
            throw new IOException("the folder " + folder + " cannot be made");
        }
        return folder;
    }

    private static void remove(File file) {
        File[] inside = file.listFiles();
        if (inside != null) {
            for (File each : inside) {
                remove(each);
            }
        }
        file.delete();
    }
}
