package org.tvmcodl.rpc.serve;

import java.io.Closeable;
import java.io.IOException;

/** How one client comes in: registers, waits, and shakes hands. */
interface Door extends Closeable {
    /** Reaching the tracker or the proxy takes no longer, nor does a handshake. */
    int PATIENCE_MS = 6000;

    /** A registration that is older than this is made anew: phones change networks, and TCP does not notice. */
    int RENEW_MS = 300000;

    /** Told where it waits. */
    interface Waiting {
        void at(String where);
    }

    /**
     * The next client, or null where nobody came for {@link #RENEW_MS}.
     *
     * <p>Throws {@link IOException}, with words for the person at the phone, where it cannot register or is cut off.
     */
    Client open(Waiting waiting) throws IOException;

    /** Ends the registration, which lasts as long as the session. */
    @Override
    void close();
}
