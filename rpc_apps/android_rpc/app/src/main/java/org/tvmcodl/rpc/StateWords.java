package org.tvmcodl.rpc;

import android.content.Context;
import org.tvmcodl.rpc.serve.State;

/** States in the reader's language. */
final class StateWords {
    private StateWords() {}

    static String of(Context context, State state) {
        switch (state) {
            case STARTING:
                return context.getString(R.string.state_starting);
            case LISTENING:
                return context.getString(R.string.state_listening);
            case SERVING:
                return context.getString(R.string.state_serving);
            case WAITING:
                return context.getString(R.string.state_waiting);
            case ENDING:
                return context.getString(R.string.state_ending);
            default:
                return context.getString(R.string.state_stopped);
        }
    }
}
