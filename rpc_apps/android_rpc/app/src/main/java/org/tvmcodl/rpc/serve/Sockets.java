package org.tvmcodl.rpc.serve;

import java.io.IOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;

/** Sockets as all doors open them. */
final class Sockets {
    private static final int BACKLOG = 16;

    private Sockets() {}

    /** Throws {@link IOException} that says whether the name, the port or the time was the trouble. */
    static Socket connect(String host, int port, String what) throws IOException {
        Socket socket = new Socket();
        try {
            InetSocketAddress address = new InetSocketAddress(host, port);
            if (address.isUnresolved()) {
                throw new IOException("the address is unknown");
            }
            socket.connect(address, Door.PATIENCE_MS);
            prepare(socket);
            return socket;
        } catch (IOException error) {
            socket.close();
            throw new IOException(
                    "the " + what + " at " + host + ":" + port + " cannot be reached: " + error.getMessage(), error);
        }
    }

    /** Small packets go at once, and a connection that is dead is found out in the end. */
    static void prepare(Socket socket) throws IOException {
        socket.setTcpNoDelay(true);
        socket.setKeepAlive(true);
    }

    /** A listening socket on the first free port from {@code port} on. */
    static ServerSocket listen(InetAddress at, int port, int ports) throws IOException {
        BindException taken = null;
        for (int number = port; number < port + ports && number <= 65535; number++) {
            ServerSocket server = new ServerSocket();
            try {
                server.setReuseAddress(true);
                server.bind(new InetSocketAddress(at, number), BACKLOG);
                return server;
            } catch (BindException error) {
                server.close();
                taken = error;
            }
        }
        throw new IOException("no free port from " + port + " on at " + at.getHostAddress(), taken);
    }
}
