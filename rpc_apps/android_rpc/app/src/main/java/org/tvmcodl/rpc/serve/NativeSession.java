package org.tvmcodl.rpc.serve;

import java.io.File;
import org.apache.tvm.Function;
import org.apache.tvm.Module;
import org.apache.tvm.TVMValue;

/**
 * TVM's server loop in native code, on a socket's descriptor.
 *
 * <p>tvm4j's own loop calls back into Java for every piece that is sent, and JNI keeps a reference to each until the
 * session ends: Android 7 allows 512 of them.
 */
final class NativeSession {
    /** The session of rpc_apps/cpp_rpc: in the app's library, and not in a plain TVM. */
    private static final String SESSION = "codl.serve_session";

    private static final String LOOP = "rpc.ServerLoop";

    private NativeSession() {}

    /** Loads tvm4j's native library.  Throws an {@link Error} if there is none. */
    static void load() {
        try {
            if (Function.getFunction(LOOP) == null) {
                throw new UnsatisfiedLinkError("it has no RPC server");
            }
        } catch (LinkageError error) {
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            throw new UnsatisfiedLinkError("the native library is missing or unusable: " + cause.getMessage());
        }
    }

    /**
     * Returns when the client leaves, with the descriptor closed.  The client's uploads go to {@code folder}.  Throws
     * {@link RuntimeException} if the client breaks off in the middle of a message.
     */
    static void serve(int descriptor, final File folder) {
        Function session = Function.getFunction(SESSION);
        if (session != null) {
            session.pushArg(descriptor).pushArg(folder.getPath()).invoke();
            return;
        }
        Function.register("tvm.rpc.server.workpath", new Function.Callback() {
            @Override
            public Object invoke(TVMValue... args) {
                return new File(folder, args[0].asString()).getPath();
            }
        }, true);
        Function.register("tvm.rpc.server.load_module", new Function.Callback() {
            @Override
            public Object invoke(TVMValue... args) {
                return Module.load(new File(folder, args[0].asString()).getPath());
            }
        }, true);
        Function.getFunction(LOOP).pushArg(descriptor).invoke();
    }
}
