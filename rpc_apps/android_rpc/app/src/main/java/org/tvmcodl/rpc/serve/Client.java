package org.tvmcodl.rpc.serve;

import java.net.Socket;

/** A client whose handshake is done. */
final class Client {
    private static final String TIMEOUT = "-timeout=";

    final Socket socket;
    final String from;

    /** The seconds that it asked for, 0 where it did not. */
    final double askedSeconds;

    Client(Socket socket, String from, double askedSeconds) {
        this.socket = socket;
        this.from = from;
        this.askedSeconds = askedSeconds;
    }

    /** Its session's time limit: what it asked for, but never more than {@code longest}. */
    int limitSeconds(int longest) {
        return askedSeconds > 0 ? (int) Math.min(longest, Math.max(1, Math.ceil(askedSeconds))) : longest;
    }

    /** The time in a client's greeting, "client:key -timeout=60"; Python writes whole and other numbers. */
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
