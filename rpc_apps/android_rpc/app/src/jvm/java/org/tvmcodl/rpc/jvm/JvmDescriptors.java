package org.tvmcodl.rpc.jvm;

import java.io.FileDescriptor;
import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.Socket;
import java.net.SocketImpl;
import java.util.Arrays;
import java.util.List;
import org.tvmcodl.rpc.serve.Session;

/** A socket's descriptor from the JVM's internal classes, as it has no public method for it. */
final class JvmDescriptors implements Session.Descriptors {
    static final List<String> OPTIONS = Arrays.asList(
            "--add-opens=java.base/java.net=ALL-UNNAMED",
            "--add-opens=java.base/java.io=ALL-UNNAMED",
            "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED");

    @Override
    public int of(Socket socket) throws IOException {
        try {
            Method impl = Socket.class.getDeclaredMethod("getImpl");
            impl.setAccessible(true);
            Method descriptor = SocketImpl.class.getDeclaredMethod("getFileDescriptor");
            descriptor.setAccessible(true);
            FileDescriptor socketDescriptor = (FileDescriptor) descriptor.invoke(impl.invoke(socket));
            // Reads with a time limit leave it in non-blocking mode.
            Method blocking = Class.forName("sun.nio.ch.IOUtil")
                    .getDeclaredMethod("configureBlocking", FileDescriptor.class, boolean.class);
            blocking.setAccessible(true);
            blocking.invoke(null, socketDescriptor, true);
            Field number = FileDescriptor.class.getDeclaredField("fd");
            number.setAccessible(true);
            return number.getInt(socketDescriptor);
        } catch (ReflectiveOperationException error) {
            throw new IOException("this JVM does not give a socket's descriptor", error);
        }
    }
}
