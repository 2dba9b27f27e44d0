package org.tvmcodl.rpc.serve;

import java.io.IOException;
import java.net.Socket;
import java.net.SocketTimeoutException;

/** Serves through a connection to {@code tvm.exec.rpc_proxy}. */
final class ProxyDoor implements Door {
    private final Settings settings;

    ProxyDoor(Settings settings) {
        this.settings = settings;
    }

    /** The connection is the client's. */
    @Override
    public void close() {}

    @Override
    public Client open(Waiting waiting) throws IOException {
        String where = settings.host + ":" + settings.port;
        Socket socket = Sockets.connect(settings.host, settings.port, "proxy");
        boolean paired = false;
        try {
            Wire wire = new Wire(socket);
            wire.send(Wire.MAGIC);
            wire.send("server:" + settings.key);
            waiting.at("proxy " + where + ", key " + settings.key);
            // The proxy answers only when a client with this key comes.
            wire.within(RENEW_MS);
            int magic;
            try {
                magic = wire.number();
            } catch (SocketTimeoutException nobody) {
                return null;
            } catch (IOException closed) {
                throw new IOException("the proxy at " + where + " closed the connection", closed);
            }
            if (magic == Wire.DUPLICATE) {
                throw new IOException("another phone serves key " + settings.key + " at the proxy " + where);
            }
            if (magic != Wire.MAGIC && magic != Wire.MISMATCH) {
                throw new IOException("what answers at " + where + " is not TVM's RPC proxy");
            }
            wire.within(PATIENCE_MS);
            String greeting = wire.text(Wire.LONGEST_GREETING);
            wire.withoutLimit();
            paired = true;
            return new Client(socket, "a client of the proxy " + where, Client.askedSeconds(greeting));
        } finally {
            if (!paired) {
                socket.close();
            }
        }
    }
}
