package org.tvmcodl.rpc.serve;

import java.io.IOException;
import java.net.InetAddress;

/** Waits for clients on the address and port of the settings. */
final class PortListener extends Listener {
    PortListener(Settings settings) {
        super(settings);
    }

    @Override
    Client accept(Session.EventListener events) throws IOException {
        try (ServerPort port = new ServerPort(InetAddress.getByName(settings.host), settings.port, 1, settings.key)) {
            String where = "port " + port.number() + " of " + settings.host + ", key " + settings.key;
            events.receive(new SessionEvent(SessionEvent.Kind.LISTENING, where));
            while (true) {
                Client client = port.accept(settings.key, RENEW_MS);
                if (client != null) {
                    return client;
                }
            }
        }
    }
}
