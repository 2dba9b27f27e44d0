package org.tvmcodl.rpc.serve;

import java.io.IOException;
import java.security.SecureRandom;

/**
 * Registers with {@code tvm.exec.rpc_tracker} and waits on a port of its own.
 *
 * <p>The port is open only on the address from which the tracker was reached: on loopback over USB.
 */
final class TrackerListener extends Listener {
    /** The ports to try, which {@code adb forward} has to name. */
    static final int FIRST_PORT = 5001;

    static final int PORTS = 10;

    /** From tvm/rpc/base.py. */
    private static final int PUT = 3;

    private static final int UPDATE_INFO = 5;
    private static final int GET_PENDING_MATCHKEYS = 7;
    private static final String SUCCESS = "0";

    /** Between queries whether the tracker still knows this phone, as in TVM's own server. */
    private static final int QUERY_MS = 2000;

    /** A client that got the secret and did not come in this time will not come. */
    private static final int UNUSED_MS = 8000;

    private final SecureRandom random = new SecureRandom();
    private final String where;

    /** The tracker lists the phone as long as this is open. */
    private Connection tracker;

    TrackerListener(Settings settings) {
        super(settings);
        where = settings.host + ":" + settings.port;
    }

    @Override
    Client accept(Session.EventListener events) throws IOException {
        tracker = Connection.open(settings.host, settings.port, "tracker");
        try (ServerPort port = new ServerPort(tracker.socket.getLocalAddress(), FIRST_PORT, PORTS, settings.key)) {
            tracker.limitTime(TIMEOUT_MS);
            tracker.send(Connection.TRACKER_MAGIC);
            if (tracker.readNumber() != Connection.TRACKER_MAGIC) {
                throw new IOException("what answers at " + where + " is not TVM's RPC tracker");
            }
            String about = "{\"key\": \"server:" + settings.key + "\", \"addr\": [null, " + port.number() + "]}";
            tell("[" + UPDATE_INFO + ", " + about + "]");
            String secret = offer(port.number());
            String at = "tracker " + where + ", key " + settings.key + ", port " + port.number();
            events.receive(new SessionEvent(SessionEvent.Kind.LISTENING, at));
            long next = now() + QUERY_MS;
            int taken = 0; // ms since a client got the secret
            while (true) {
                Client client = port.accept(secret, (int) Math.max(1, next - now()));
                if (client != null) {
                    return client;
                }
                if (now() < next) {
                    continue; // a refused connection
                }
                next = now() + QUERY_MS;
                taken = ask("[" + GET_PENDING_MATCHKEYS + "]").contains(secret) ? 0 : taken + QUERY_MS;
                if (taken >= UNUSED_MS) {
                    secret = offer(port.number());
                    taken = 0;
                }
            }
        }
    }

    @Override
    public void close() {
        if (tracker == null) {
            return;
        }
        try {
            tracker.socket.close();
        } catch (IOException lost) {
            // it is gone all the same
        }
    }

    private static long now() {
        return System.nanoTime() / 1000000;
    }

    /** Tells the tracker that the phone is free; returns the secret that only the tracker's next client gets. */
    private String offer(int port) throws IOException {
        String secret = settings.key + ":" + Long.toHexString(random.nextLong()) + Long.toHexString(random.nextLong());
        tell("[" + PUT + ", \"" + settings.key + "\", [" + port + ", \"" + secret + "\"], null]");
        return secret;
    }

    private String ask(String question) throws IOException {
        try {
            tracker.limitTime(TIMEOUT_MS);
            tracker.send(question);
            return tracker.readText(Connection.LONGEST_ANSWER);
        } catch (IOException lost) {
            throw new IOException("the tracker at " + where + " closed the connection or does not answer", lost);
        }
    }

    private void tell(String message) throws IOException {
        String answer = ask(message);
        if (!answer.trim().equals(SUCCESS)) {
            throw new IOException("the tracker at " + where + " refused " + message + ": " + answer);
        }
    }
}
