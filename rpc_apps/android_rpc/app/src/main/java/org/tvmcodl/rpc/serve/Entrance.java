package org.tvmcodl.rpc.serve;

import java.io.Closeable;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;

/** A port of the phone's own, on which clients shake hands.  Strangers are sent away, and do not end it. */
final class Entrance implements Closeable {
    private final ServerSocket server;
    private final String key;

    Entrance(InetAddress at, int port, int ports, String key) throws IOException {
        server = Sockets.listen(at, port, ports);
        this.key = key;
    }

    int port() {
        return server.getLocalPort();
    }

    /** A client that says {@code secret}, or null where none did within {@code millis}. */
    Client next(String secret, int millis) throws IOException {
        server.setSoTimeout(millis);
        Socket socket;
        try {
            socket = server.accept();
        } catch (SocketTimeoutException nobody) {
            return null;
        }
        boolean welcome = false;
        try {
            Sockets.prepare(socket);
            socket.setSoTimeout(Door.PATIENCE_MS);
            Wire wire = new Wire(socket);
            if (wire.number() != Wire.MAGIC) {
                return null;
            }
            String greeting = wire.text();
            if (!greeting.split("\\s+")[0].equals("client:" + secret)) {
                wire.send(Wire.MISMATCH);
                return null;
            }
            wire.send(Wire.MAGIC);
            wire.send("server:" + key);
            socket.setSoTimeout(0);
            welcome = true;
            return new Client(
                    socket, String.valueOf(socket.getRemoteSocketAddress()), Client.askedSeconds(greeting));
        } catch (IOException stranger) {
            return null;
        } finally {
            if (!welcome) {
                socket.close();
            }
        }
    }

    @Override
    public void close() throws IOException {
        server.close();
    }
}
