package org.tvmcodl.rpc.serve;

import java.io.File;
import java.io.IOException;
import java.net.Socket;

/** What a session's process does, from its registration to its last word.  The process ends after it. */
public final class Session {
    /** Hears the session's events in turn. */
    public interface Ear {
        void hear(SessionEvent event);
    }

    /** Gives a connected socket's descriptor, in blocking mode, to native code that will close it. */
    public interface Descriptors {
        int of(Socket socket) throws IOException;
    }

    private Session() {}

    /** Serves one client; never throws.  Files that clients send lie in {@code folder}, which is emptied first. */
    public static void run(final Settings settings, File folder, Descriptors descriptors, final Ear ear) {
        try (Door door = door(settings)) {
            System.setProperty("java.io.tmpdir", empty(folder).getPath());
            // The native library loads before a client comes, so that a phone without it never registers.
            ClientLoop.load();
            Client client = door.open(new Door.Waiting() {
                @Override
                public void at(String where) {
                    ear.hear(new SessionEvent(SessionEvent.Kind.LISTENING, where));
                }
            });
            if (client == null) {
                ear.hear(new SessionEvent(SessionEvent.Kind.RENEW, "nobody came"));
                return;
            }
            int limit = client.limitSeconds(settings.limitSeconds);
            ear.hear(new SessionEvent(SessionEvent.Kind.SERVING, limit, client.from));
            ClientLoop.serve(descriptors.of(client.socket), folder);
            ear.hear(new SessionEvent(SessionEvent.Kind.FINISHED, client.from));
        } catch (Throwable error) { // a missing library is an Error, and has to be told too
            String words = error.getMessage() == null ? error.toString() : error.getMessage();
            ear.hear(new SessionEvent(SessionEvent.Kind.FAILED, words));
        }
    }

    private static Door door(Settings settings) {
        switch (settings.mode) {
            case PROXY:
                return new ProxyDoor(settings);
            case TRACKER:
                return new TrackerDoor(settings);
            default:
                return new ListenDoor(settings);
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
