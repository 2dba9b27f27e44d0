package org.tvmcodl.rpc;

import android.app.Service;
import android.content.Intent;
import android.os.Bundle;
import android.os.Handler;
import android.os.IBinder;
import android.os.Looper;
import android.os.Message;
import android.os.Messenger;
import android.os.ParcelFileDescriptor;
import android.os.Process;
import android.os.RemoteException;
import android.util.Log;
import java.io.File;
import java.io.IOException;
import java.net.Socket;
import org.tvmcodl.rpc.serve.Session;
import org.tvmcodl.rpc.serve.SessionEvent;
import org.tvmcodl.rpc.serve.Settings;
import org.tvmcodl.rpc.serve.SettingsError;

/** One session, in the process ":session", which ends with it and with whatever a client broke. */
public final class SessionService extends Service {
    /** To this service: serve with these words as settings; events go to {@code replyTo}. */
    static final int SERVE = 1;

    /** From this service: an event, as its line. */
    static final int EVENT = 2;

    static final String WORDS = "words";
    static final String LINE = "line";

    private static final String TAG = "codl-session";

    private final Messenger messenger = new Messenger(new Handler(Looper.getMainLooper(), new Handler.Callback() {
        @Override
        public boolean handleMessage(Message message) {
            if (message.what == SERVE) {
                serve(message.getData().getStringArray(WORDS), message.replyTo);
            }
            return true;
        }
    }));

    @Override
    public IBinder onBind(Intent intent) {
        return messenger.getBinder();
    }

    /** Nobody supervises it any more. */
    @Override
    public boolean onUnbind(Intent intent) {
        end();
        return false;
    }

    private void serve(final String[] words, final Messenger supervisor) {
        // Not on the main thread: Android reports an app that blocks it.
        new Thread("session") {
            @Override
            public void run() {
                try {
                    Settings settings = Settings.parse(words);
                    Session.run(settings, new File(getCacheDir(), "session"), DESCRIPTORS, new Session.EventListener() {
                        @Override
                        public void receive(SessionEvent event) {
                            send(supervisor, event);
                        }
                    });
                } catch (SettingsError error) {
                    send(supervisor, new SessionEvent(SessionEvent.Kind.FAILED, error.getMessage()));
                }
                end();
            }
        }.start();
    }

    private static void send(Messenger supervisor, SessionEvent event) {
        Message message = Message.obtain(null, EVENT);
        Bundle data = new Bundle();
        data.putString(LINE, event.line());
        message.setData(data);
        try {
            supervisor.send(message);
        } catch (RemoteException gone) {
            Log.w(TAG, "nobody supervises this session: " + event);
        }
    }

    private static void end() {
        Process.killProcess(Process.myPid());
    }

    private static final Session.Descriptors DESCRIPTORS = new Session.Descriptors() {
        @Override
        public int of(Socket socket) throws IOException {
            // A copy: Java closes its own when it collects the socket.
            return ParcelFileDescriptor.fromSocket(socket).dup().detachFd();
        }
    };
}
