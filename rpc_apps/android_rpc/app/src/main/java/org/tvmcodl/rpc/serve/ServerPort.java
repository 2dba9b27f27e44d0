package org.tvmcodl.rpc.serve;

import java.io.Closeable;
import java.io.IOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;

/** A listening port with TVM's handshake.  Refused connections do not end it. */
final class ServerPort implements Closeable {
    private static final int BACKLOG = 16;

    private final ServerSocket server;
    private final String key;

    /** For a whole handshake; other connections wait meanwhile. */
    int timeoutMs = Listener.TIMEOUT_MS;

    /** Opens the first free one of {@code ports} ports from {@code first} on. */
    ServerPort(InetAddress at, int first, int ports, String key) throws IOException {
        server = open(at, first, ports);
        this.key = key;
    }

    private static ServerSocket open(InetAddress at, int first, int ports) throws IOException {
        BindException taken = null;
        for (int port = first; port < first + ports && port <= 65535; port++) {
            ServerSocket server = new ServerSocket();
            try {
                server.setReuseAddress(true);
                server.bind(new InetSocketAddress(at, port), BACKLOG);
                return server;
            } catch (BindException error) {
                server.close();
                taken = error;
            }
        }
        throw new IOException("no free port from " + first + " on at " + at.getHostAddress(), taken);
    }

    int number() {
        return server.getLocalPort();
    }

    /** The client of the next connection, or null if it was refused, or if none came within {@code millis}. */
    Client accept(String secret, int millis) throws IOException {
        server.setSoTimeout(millis);
        Socket socket;
        try {
            socket = server.accept();
        } catch (SocketTimeoutException nobody) {
            return null;
        }
        Client client = null;
        try {
            client = shakeHands(new Connection(socket), secret);
        } catch (IOException | RuntimeException refused) {
            // Whatever a peer sends must not end the session's process.
        } finally {
            if (client == null) {
                socket.close();
            }
        }
        return client;
    }

    private Client shakeHands(Connection peer, String secret) throws IOException {
        peer.limitTime(timeoutMs);
        if (peer.readNumber() != Connection.MAGIC) {
            return null;
        }
        String greeting = peer.readText(Connection.LONGEST_GREETING);
        // split() makes no word of blanks alone, and one of "".
        if (!greeting.trim().split("\\s+")[0].equals("client:" + secret)) {
            peer.send(Connection.MISMATCH);
            return null;
        }
        peer.send(Connection.MAGIC);
        peer.send("server:" + key);
        peer.unlimitTime();
        String from = String.valueOf(peer.socket.getRemoteSocketAddress());
        return new Client(peer.socket, from, Client.askedSeconds(greeting));
    }

    @Override
    public void close() throws IOException {
        server.close();
    }
}
