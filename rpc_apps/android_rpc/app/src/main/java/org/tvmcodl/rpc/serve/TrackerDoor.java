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

    /** A client that was given the secret so long ago and has not come will not come. */
    private static final int UNUSED_MS = 8000;

    private final Settings settings;
    private final SecureRandom random = new SecureRandom();

    /** Open while the session lasts: to the tracker, the phone is there as long as this is. */
    private Socket socket;

    TrackerDoor(Settings settings) {
        this.settings = settings;
    }

    @Override
    public Client open(Waiting waiting) throws IOException {
        String where = settings.host + ":" + settings.port;
        socket = Sockets.connect(settings.host, settings.port, "tracker");
        try (Entrance entrance = new Entrance(socket.getLocalAddress(), FIRST_PORT, PORTS, settings.key)) {
            Wire tracker = new Wire(socket);
            tracker.within(PATIENCE_MS);
            tracker.send(Wire.TRACKER_MAGIC);
            if (tracker.number() != Wire.TRACKER_MAGIC) {
                throw new IOException("what answers at " + where + " is not TVM's RPC tracker");
            }
            int port = entrance.port();
            String about = "{\"key\": \"server:" + settings.key + "\", \"addr\": [null, " + port + "]}";
            agreed(tracker, "[" + UPDATE_INFO + ", " + about + "]", where);
            String secret = offer(tracker, port, where);
            waiting.at("tracker " + where + ", key " + settings.key + ", port " + port);
            long next = now() + ASK_MS;
            int taken = 0; // ms for which the secret has been a client's that has not come
            while (true) {
                Client client = entrance.next(secret, (int) Math.max(1, next - now()));
                if (client != null) {
                    return client;
                }
                if (now() < next) {
                    continue; // a stranger was sent away
                }
                next = now() + ASK_MS;
                taken = asked(tracker, "[" + GET_PENDING_MATCHKEYS + "]", where).contains(secret) ? 0 : taken + ASK_MS;
                if (taken >= UNUSED_MS) {
                    secret = offer(tracker, port, where);
                    taken = 0;
                }
            }
        }
    }

    @Override
    public void close() {
        if (socket == null) {
            return;
        }
        try {
            socket.close();
        } catch (IOException lost) {
            // it is gone all the same
        }
    }

    private static long now() {
        return System.nanoTime() / 1000000;
    }

    /** Tells the tracker that a client may come, with a secret that only the tracker's next client gets. */
    private String offer(Wire tracker, int port, String where) throws IOException {
        String secret = settings.key + ":" + Long.toHexString(random.nextLong()) + Long.toHexString(random.nextLong());
        agreed(tracker, "[" + PUT + ", \"" + settings.key + "\", [" + port + ", \"" + secret + "\"], null]", where);
        return secret;
    }

    private static String asked(Wire tracker, String question, String where) throws IOException {
        try {
            tracker.within(PATIENCE_MS);
            tracker.send(question);
            return tracker.text(Wire.LONGEST_ANSWER);
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
