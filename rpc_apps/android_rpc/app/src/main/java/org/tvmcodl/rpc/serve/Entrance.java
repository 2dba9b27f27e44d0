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

    /** How long a handshake may take in all; others wait meanwhile. */
    int patienceMs = Door.PATIENCE_MS;

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
        Client client = null;
        try {
            client = greeted(socket, secret);
        } catch (IOException | RuntimeException stranger) {
            // Whatever it sent: strangers do not end the session's process.
        } finally {
            if (client == null) {
                socket.close();
            }
        }
        return client;
    }

    private Client greeted(Socket socket, String secret) throws IOException {
        Sockets.prepare(socket);
        Wire wire = new Wire(socket);
        wire.within(patienceMs);
        if (wire.number() != Wire.MAGIC) {
            return null;
        }
        String greeting = wire.text(Wire.LONGEST_GREETING);
        // Of nothing but blanks, split() makes no word at all; of "" it makes one.
        if (!greeting.trim().split("\\s+")[0].equals("client:" + secret)) {
            wire.send(Wire.MISMATCH);
            return null;
        }
        wire.send(Wire.MAGIC);
        wire.send("server:" + key);
        wire.withoutLimit();
        return new Client(socket, String.valueOf(socket.getRemoteSocketAddress()), Client.askedSeconds(greeting));
    }

    @Override
    public void close() throws IOException {
        server.close();
    }
}
