package org.tvmcodl.rpc.serve;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;

/** The words of TVM's handshakes on a socket: little-endian 32-bit numbers, and texts behind their length. */
final class Wire {
    /** From tvm/rpc/base.py. */
    static final int MAGIC = 0xff271;

    static final int DUPLICATE = MAGIC + 1;
    static final int MISMATCH = MAGIC + 2;
    static final int TRACKER_MAGIC = 0x2f271;

    /** No greeting is longer; rpc_apps/cpp_rpc has the same limit. */
    static final int LONGEST_GREETING = 1024;

    /** No tracker's answer is longer. */
    static final int LONGEST_ANSWER = 1 << 20;

    private final Socket socket;
    private final InputStream in;
    private final OutputStream out;
    private boolean limited;
    private long deadline;

    Wire(Socket socket) throws IOException {
        this.socket = socket;
        in = socket.getInputStream();
        out = socket.getOutputStream();
    }

    /** What is read from now on has to come within this time in all: a socket's own limit begins anew at each byte. */
    void within(int millis) {
        limited = true;
        deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    }

    /** The handshake is over: whoever reads the socket next waits for as long as it takes. */
    void withoutLimit() throws IOException {
        limited = false;
        socket.setSoTimeout(0);
    }

    int number() throws IOException {
        return ByteBuffer.wrap(bytes(4)).order(ByteOrder.LITTLE_ENDIAN).getInt();
    }

    String text(int longest) throws IOException {
        int length = number();
        if (length < 0 || length > longest) {
            throw new IOException("a text of " + length + " bytes is announced");
        }
        return new String(bytes(length), StandardCharsets.UTF_8);
    }

    private byte[] bytes(int size) throws IOException {
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
            int more = in.read(bytes, got, size - got);
            if (more < 0) {
                throw new EOFException("the other side closed the connection");
            }
            got += more;
        }
        return bytes;
    }

    void send(int number) throws IOException {
        out.write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(number).array());
    }

    void send(String text) throws IOException {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        ByteBuffer whole = ByteBuffer.allocate(4 + bytes.length).order(ByteOrder.LITTLE_ENDIAN);
        out.write(whole.putInt(bytes.length).put(bytes).array());
    }
}
