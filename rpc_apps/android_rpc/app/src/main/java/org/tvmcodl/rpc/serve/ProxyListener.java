package org.tvmcodl.rpc.serve;

import java.io.IOException;
import java.net.SocketTimeoutException;

/** Serves through a connection to {@code tvm.exec.rpc_proxy}. */
final class ProxyListener extends Listener {
    ProxyListener(Settings settings) {
        super(settings);
    }

    @Override
    Client accept(Session.EventListener events) throws IOException {
        String where = settings.host + ":" + settings.port;
        Connection proxy = Connection.open(settings.host, settings.port, "proxy");
        boolean paired = false;
        try {
            proxy.send(Connection.MAGIC);
            proxy.send("server:" + settings.key);
            events.receive(new SessionEvent(SessionEvent.Kind.LISTENING, "proxy " + where + ", key " + settings.key));
            // The proxy answers when a client with this key comes.
            proxy.limitTime(RENEW_MS);
            int magic;
            try {
                magic = proxy.readNumber();
            } catch (SocketTimeoutException nobody) {
                return null;
            } catch (IOException closed) {
                throw new IOException("the proxy at " + where + " closed the connection", closed);
            }
            if (magic == Connection.DUPLICATE) {
                throw new IOException("another phone serves key " + settings.key + " at the proxy " + where);
            }
            if (magic != Connection.MAGIC && magic != Connection.MISMATCH) {
                throw new IOException("what answers at " + where + " is not TVM's RPC proxy");
            }
            proxy.limitTime(TIMEOUT_MS);
            String greeting = proxy.readText(Connection.LONGEST_GREETING);
            proxy.unlimitTime();
            paired = true;
            return new Client(proxy.socket, "a client of the proxy " + where, Client.askedSeconds(greeting));
        } finally {
            if (!paired) {
                proxy.socket.close();
            }
        }
    }
}
