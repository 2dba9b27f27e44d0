package org.tvmcodl.rpc;

import android.os.Handler;
import android.os.Looper;
import org.tvmcodl.rpc.serve.Loop;

/** The app's main thread. */
final class MainLoop implements Loop {
    private final Handler handler = new Handler(Looper.getMainLooper());

    @Override
    public Alarm after(long millis, final Runnable what) {
        handler.postDelayed(what, millis);
        return new Alarm() {
            @Override
            public void cancel() {
                handler.removeCallbacks(what);
            }
        };
    }
}
