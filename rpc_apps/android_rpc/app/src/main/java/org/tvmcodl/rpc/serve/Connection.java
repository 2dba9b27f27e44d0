package org.tvmcodl.rpc.serve;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;

/** A socket with TVM's handshake format: little-endian 32-bit numbers, and texts preceded by their length. */
final class Connection {
    /** From tvm/rpc/base.py. */
    static final int MAGIC = 0xff271;

    static final int DUPLICATE = MAGIC + 1;
    static final int MISMATCH = MAGIC + 2;
    static final int TRACKER_MAGIC = 0x2f271;

    /** The same limit as in rpc_apps/cpp_rpc. */
    static final int LONGEST_GREETING = 1024;

    static final int LONGEST_ANSWER = 1 << 20;

    final Socket socket;
    private boolean limited;
    private long deadline;

    Connection(Socket socket) throws IOException {
        this.socket = socket;
        socket.setTcpNoDelay(true);
        socket.setKeepAlive(true);
    }

    /** Throws {@link IOException} that names the cause: the address, the port or the time. */
    static Connection open(String host, int port, String what) throws IOException {
        Socket socket = new Socket();
        try {
            InetSocketAddress address = new InetSocketAddress(host, port);
            if (address.isUnresolved()) {
                throw new IOException("the address is unknown");
            }
            socket.connect(address, Listener.TIMEOUT_MS);
            return new Connection(socket);
        } catch (IOException error) {
            socket.close();
            throw new IOException(
                    "the " + what + " at " + host + ":" + port + " cannot be reached: " + error.getMessage(), error);
        }
    }

    /** Limits the time of all reads from now on together; a socket's own limit restarts at each byte. */
    void limitTime(int millis) {
        limited = true;
        deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    }

    /** After the handshake: reads may take any time. */
    void unlimitTime() throws IOException {
        limited = false;
        socket.setSoTimeout(0);
    }

    int readNumber() throws IOException {
        return ByteBuffer.wrap(read(4)).order(ByteOrder.LITTLE_ENDIAN).getInt();
    }

    String readText(int longest) throws IOException {
        int length = readNumber();
        if (length < 0 || length > longest) {
            throw new IOException("a text of " + length + " bytes is announced");
        }
        return new String(read(length), StandardCharsets.UTF_8);
    }

    private byte[] read(int size) throws IOException {
        byte[] bytes = new byte[size];
        int got = 0;
        while (got < size) {
            if (limited) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    throw new SocketTimeoutException("the other side takes too long");
                }
                // Rounded up: to a socket, 0 is no limit.
                socket.setSoTimeout((int) TimeUnit.NANOSECONDS.toMillis(left) + 1);
            }
            int more = socket.getInputStream().read(bytes, got, size - got);
            if (more < 0) {
                throw new EOFException("the other side closed the connection");
            }
            got += more;
        }
        return bytes;
    }

    void send(int number) throws IOException {
        write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(number));
    }

    void send(String text) throws IOException {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        ByteBuffer whole = ByteBuffer.allocate(4 + bytes.length).order(ByteOrder.LITTLE_ENDIAN);
        write(whole.putInt(bytes.length).put(bytes));
    }

    private void write(ByteBuffer bytes) throws IOException {
        socket.getOutputStream().write(bytes.array());
    }
}
