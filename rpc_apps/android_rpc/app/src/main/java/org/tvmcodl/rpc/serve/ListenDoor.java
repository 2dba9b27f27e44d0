package org.tvmcodl.rpc.serve;

import java.io.IOException;
import java.net.InetAddress;

/** Waits for clients on the address and port of the settings. */
final class ListenDoor implements Door {
    private final Settings settings;

    ListenDoor(Settings settings) {
        this.settings = settings;
    }

    /** Nothing outlives {@link #open}. */
    @Override
    public void close() {}

    @Override
    public Client open(Waiting waiting) throws IOException {
        try (Entrance entrance = new Entrance(InetAddress.getByName(settings.host), settings.port, 1, settings.key)) {
            waiting.at("port " + entrance.port() + " of " + settings.host + ", key " + settings.key);
            while (true) {
                Client client = entrance.next(settings.key, RENEW_MS);
                if (client != null) {
                    return client;
                }
            }
        }
    }
}
