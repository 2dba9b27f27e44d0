package org.tvmcodl.rpc.serve;

import java.io.IOException;
import java.net.Socket;
import java.security.SecureRandom;

/**
 * Registers with {@code tvm.exec.rpc_tracker} and waits on a port of its own.
 *
 * <p>The port is open only on the address from which the tracker was reached: on loopback where that went over USB.
 */
final class TrackerDoor implements Door {
    /** The first port that is tried, and how many: those that {@code adb forward} has to name. */
    static final int FIRST_PORT = 5001;

    static final int PORTS = 10;

    /** From tvm/rpc/base.py. */
    private static final int PUT = 3;

    private static final int UPDATE_INFO = 5;
    private static final int GET_PENDING_MATCHKEYS = 7;
    private static final String SUCCESS = "0";

    /** How often the tracker is asked whether it still knows this phone, as TVM's own server does. */
    private static final int ASK_MS = 2000;

    /** A client that was given the secret and has not come after so many questions will not come. */
    private static final int LOST_AFTER = 4;

    private final Settings settings;
    private final SecureRandom random = new SecureRandom();

    TrackerDoor(Settings settings) {
        this.settings = settings;
    }

    @Override
    public Client open(Waiting waiting) throws IOException {
        String where = settings.host + ":" + settings.port;
        try (Socket socket = Sockets.connect(settings.host, settings.port, "tracker");
                Entrance entrance = new Entrance(socket.getLocalAddress(), FIRST_PORT, PORTS, settings.key)) {
            socket.setSoTimeout(PATIENCE_MS);
            Wire tracker = new Wire(socket);
            tracker.send(Wire.TRACKER_MAGIC);
            if (tracker.number() != Wire.TRACKER_MAGIC) {
                throw new IOException("what answers at " + where + " is not TVM's RPC tracker");
            }
            int port = entrance.port();
            String about = "{\"key\": \"server:" + settings.key + "\", \"addr\": [null, " + port + "]}";
            agreed(tracker, "[" + UPDATE_INFO + ", " + about + "]", where);
            String secret = offer(tracker, port, where);
            waiting.at("tracker " + where + ", key " + settings.key + ", port " + port);
            int missing = 0;
            while (true) {
                Client client = entrance.next(secret, ASK_MS);
                if (client != null) {
                    return client;
                }
                missing = asked(tracker, "[" + GET_PENDING_MATCHKEYS + "]", where).contains(secret) ? 0 : missing + 1;
                if (missing == LOST_AFTER) {
                    secret = offer(tracker, port, where);
                    missing = 0;
                }
            }
        }
    }

    /** Tells the tracker that a client may come, with a secret that only the tracker's next client gets. */
    private String offer(Wire tracker, int port, String where) throws IOException {
        String secret = settings.key + ":" + Long.toHexString(random.nextLong()) + Long.toHexString(random.nextLong());
        agreed(tracker, "[" + PUT + ", \"" + settings.key + "\", [" + port + ", \"" + secret + "\"], null]", where);
        return secret;
    }

    private static String asked(Wire tracker, String question, String where) throws IOException {
        try {
            tracker.send(question);
            return tracker.text();
        } catch (IOException lost) {
            throw new IOException("the tracker at " + where + " closed the connection or does not answer", lost);
        }
    }

    private static void agreed(Wire tracker, String message, String where) throws IOException {
        String answer = asked(tracker, message, where);
        if (!answer.trim().equals(SUCCESS)) {
            throw new IOException("the tracker at " + where + " refused " + message + ": " + answer);
        }
    }
}
