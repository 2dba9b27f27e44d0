package org.tvmcodl.rpc.serve;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/** The words of TVM's handshakes on a socket: little-endian 32-bit numbers, and texts behind their length. */
final class Wire {
    /** From tvm/rpc/base.py. */
    static final int MAGIC = 0xff271;

    static final int DUPLICATE = MAGIC + 1;
    static final int MISMATCH = MAGIC + 2;
    static final int TRACKER_MAGIC = 0x2f271;

    /** No key and no tracker's answer is longer; a length beyond it is not TVM's. */
    static final int LONGEST_TEXT = 1 << 20;

    private final DataInputStream in;
    private final OutputStream out;

    Wire(Socket socket) throws IOException {
        in = new DataInputStream(socket.getInputStream());
        out = socket.getOutputStream();
    }

    int number() throws IOException {
        return Integer.reverseBytes(in.readInt());
    }

    String text() throws IOException {
        int length = number();
        if (length < 0 || length > LONGEST_TEXT) {
            throw new IOException("a text of " + length + " bytes is announced");
        }
        byte[] bytes = new byte[length];
        in.readFully(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
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
