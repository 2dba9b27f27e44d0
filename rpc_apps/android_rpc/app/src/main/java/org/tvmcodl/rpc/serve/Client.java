package org.tvmcodl.rpc.serve;

import java.net.Socket;

/** A client after its handshake. */
final class Client {
    private static final String TIMEOUT = "-timeout=";

    final Socket socket;
    final String from;

    /** The time limit that it asked for; 0: none. */
    final double askedSeconds;

    Client(Socket socket, String from, double askedSeconds) {
        this.socket = socket;
        this.from = from;
        this.askedSeconds = askedSeconds;
    }

    /** Its session's time limit, at most {@code longest}. */
    int limitSeconds(int longest) {
        return askedSeconds > 0 ? (int) Math.min(longest, Math.max(1, Math.ceil(askedSeconds))) : longest;
    }

    /** The time in a client's greeting, such as "client:key -timeout=60.0". */
    static double askedSeconds(String greeting) {
        for (String word : greeting.split("\\s+")) {
            if (word.startsWith(TIMEOUT)) {
                try {
                    return Double.parseDouble(word.substring(TIMEOUT.length()));
                } catch (NumberFormatException error) {
                    return 0;
                }
            }
        }
        return 0;
    }
}
