package org.tvmcodl.rpc.serve;

import java.io.Closeable;
import java.io.IOException;

/** Waits for one client in one of the three modes.  Closing it ends the registration, which lasts as long as the session. */
abstract class Listener implements Closeable {
    /** To connect to the tracker or the proxy, and for a handshake. */
    static final int TIMEOUT_MS = 6000;

    /** Older registrations are renewed: phones change networks, and TCP does not notice. */
    static final int RENEW_MS = 300000;

    final Settings settings;

    Listener(Settings settings) {
        this.settings = settings;
    }

    static Listener of(Settings settings) {
        switch (settings.mode) {
            case PROXY:
                return new ProxyListener(settings);
            case TRACKER:
                return new TrackerListener(settings);
            default:
                return new PortListener(settings);
        }
    }

    /**
     * The next client, or null if nobody came for {@link #RENEW_MS}.  {@code events} gets the event LISTENING.
     *
     * <p>Throws {@link IOException}, with a message for the phone's user, if it cannot register or loses the connection.
     */
    abstract Client accept(Session.EventListener events) throws IOException;

    @Override
    public void close() {}
}
