package org.tvmcodl.rpc.serve;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;

/** Handshakes on real sockets; what a peer sends waits in its socket until the port accepts it. */
public final class ServerPortTest {
    private static final String SECRET = "pixel:1f";

    /** For what comes at once. */
    private static final int WAIT_MS = 30000;

    private ServerPort port;

    @Before
    public void open() throws IOException {
        port = new ServerPort(InetAddress.getLoopbackAddress(), 0, 1, "pixel");
    }

    @After
    public void close() throws IOException {
        port.close();
    }

    private Socket peer(byte[] words) throws IOException {
        Socket socket = new Socket(InetAddress.getLoopbackAddress(), port.number());
        socket.setSoTimeout(WAIT_MS);
        socket.getOutputStream().write(words);
        return socket;
    }

    private Client next() throws IOException {
        return port.accept(SECRET, WAIT_MS);
    }

    private static byte[] numbers(int... numbers) {
        ByteBuffer bytes = ByteBuffer.allocate(4 * numbers.length).order(ByteOrder.LITTLE_ENDIAN);
        for (int number : numbers) {
            bytes.putInt(number);
        }
        return bytes.array();
    }

    private static byte[] greeting(String words) throws IOException {
        byte[] bytes = words.getBytes(StandardCharsets.UTF_8);
        ByteArrayOutputStream whole = new ByteArrayOutputStream();
        whole.write(numbers(Connection.MAGIC, bytes.length));
        whole.write(bytes);
        return whole.toByteArray();
    }

    /** Closed without a word; where it had not read all, that is a reset. */
    private static void closed(Socket socket) throws IOException {
        int said;
        try {
            said = socket.getInputStream().read();
        } catch (SocketException reset) {
            said = -1;
        }
        assertEquals(-1, said);
    }

    private void welcomed(String greeting, double askedSeconds) throws IOException {
        try (Socket socket = peer(greeting(greeting))) {
            Client client = next();
            assertNotNull(client);
            try (Socket served = client.socket) {
                assertEquals(askedSeconds, client.askedSeconds, 0);
                assertEquals("the session has its own time limit", 0, served.getSoTimeout());
                Connection peer = new Connection(socket);
                assertEquals(Connection.MAGIC, peer.readNumber());
                assertEquals("server:pixel", peer.readText(Connection.LONGEST_GREETING));
            }
        }
    }

    @Test
    public void whoSaysTheSecretIsAClient() throws IOException {
        welcomed("client:" + SECRET, 0);
        welcomed("client:" + SECRET + " -timeout=20", 20);
    }

    @Test
    public void anyOtherGreetingIsAStrangersAndDoesNotEndIt() throws IOException {
        String[] others = {
            "", " ", "\n\t \r", "client:", "client:pixel", SECRET, "server:" + SECRET, "client:" + SECRET + "0"
        };
        for (String words : others) {
            try (Socket stranger = peer(greeting(words))) {
                assertNull(next());
                assertEquals(Connection.MISMATCH, new Connection(stranger).readNumber());
                closed(stranger);
            }
        }
        welcomed("client:" + SECRET, 0);
    }

    @Test
    public void whatIsNotTvmsIsClosedWithoutAWord() throws IOException {
        int[][] others = {
            {Connection.MAGIC + 7, 0},
            {Connection.MAGIC, -1},
            {Connection.MAGIC, Connection.LONGEST_GREETING + 1},
            {Connection.MAGIC, Integer.MAX_VALUE}
        };
        for (int[] words : others) {
            try (Socket stranger = peer(numbers(words))) {
                assertNull(next());
                closed(stranger);
            }
        }
        try (Socket gone = peer(numbers(Connection.MAGIC))) {
            gone.shutdownOutput();
            assertNull(next());
            closed(gone);
        }
        StringBuilder longest = new StringBuilder("client:" + SECRET);
        while (longest.length() < Connection.LONGEST_GREETING) {
            longest.append(' ');
        }
        welcomed(longest.toString(), 0);
    }

    /** Each byte comes in time, and all of them would not for many seconds: the limit is for the whole handshake. */
    @Test
    public void aGreetingInDropsIsCutOff() throws Exception {
        port.timeoutMs = 200;
        final AtomicInteger dropped = new AtomicInteger();
        try (Socket stranger = peer(numbers(Connection.MAGIC, Connection.LONGEST_GREETING))) {
            Thread drops = new Thread(() -> {
                try {
                    while (dropped.get() < Connection.LONGEST_GREETING) {
                        Thread.sleep(20);
                        stranger.getOutputStream().write('x');
                        dropped.incrementAndGet();
                    }
                } catch (IOException | InterruptedException over) {
                    // it was closed, or the test is over
                }
            });
            drops.start();
            assertNull(next());
            assertTrue(dropped + " bytes came", dropped.get() < Connection.LONGEST_GREETING);
            drops.interrupt();
            drops.join();
        }
        port.timeoutMs = WAIT_MS;
        welcomed("client:" + SECRET, 0);
    }
}
