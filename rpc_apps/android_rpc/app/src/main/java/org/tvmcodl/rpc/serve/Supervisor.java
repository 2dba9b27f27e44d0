package org.tvmcodl.rpc.serve;

import java.io.IOException;

/**
 * Runs one session's process after another: notices one that died, ends one that exceeds its time limit, and listens
 * again.
 *
 * <p>All methods and callbacks run on the {@link Loop}'s thread.
 */
public final class Supervisor {
    /** A process must register within this time, and end within {@link #END_MS} of its last event. */
    public static final long START_MS = 60000;

    public static final long END_MS = 5000;

    /** The pause after a failure; it doubles with each further one, up to {@link #LONGEST_PAUSE_MS}. */
    public static final long FIRST_PAUSE_MS = 1000;

    public static final long LONGEST_PAUSE_MS = 30000;

    /** Told of every change. */
    public interface Watcher {
        void changed(Status status);
    }

    private final Loop loop;
    private final SessionProcess.Starter starter;
    private final Watcher watcher;

    private Settings settings;
    private Status status = Status.stopped();
    private Run current;
    private Loop.Alarm alarm;
    private long pause = FIRST_PAUSE_MS;

    public Supervisor(Loop loop, SessionProcess.Starter starter, Watcher watcher) {
        this.loop = loop;
        this.starter = starter;
        this.watcher = watcher;
    }

    public Status status() {
        return status;
    }

    /** Serves with these settings, after ending a session with other ones.  Resets the counts. */
    public void start(Settings settings) {
        stop();
        this.settings = settings;
        status = Status.stopped();
        pause = FIRST_PAUSE_MS;
        launch();
    }

    /** Ends the session, if any, and stops serving. */
    public void stop() {
        disarm();
        settings = null;
        Run ending = current;
        current = null;
        if (ending != null) {
            ending.kill();
        }
        if (status.state != State.STOPPED) {
            become(State.STOPPED, "", status.lastError);
        }
    }

    private void launch() {
        Run run = new Run();
        current = run;
        become(State.STARTING, settings.toString(), status.lastError);
        arm(START_MS, run.new Overdue("the session's process did not register within " + START_MS / 1000 + " s"));
        try {
            run.process = starter.start(settings, run);
        } catch (IOException error) {
            current = null;
            retry("the session's process does not start: " + error.getMessage());
        }
    }

    private void retry(String error) {
        become(State.WAITING, "next try in " + pause / 1000 + " s", error);
        arm(pause, new Runnable() {
            @Override
            public void run() {
                launch();
            }
        });
        pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
    }

    private void become(State state, String detail, String lastError) {
        become(state, detail, lastError, status.served, status.crashed, status.hung);
    }

    private void become(State state, String detail, String lastError, int served, int crashed, int hung) {
        if (!status.state.mayBecome(state)) {
            throw new IllegalStateException(status.state + " cannot become " + state);
        }
        status = new Status(state, detail, lastError, served, crashed, hung);
        watcher.changed(status);
    }

    private void arm(long millis, Runnable what) {
        disarm();
        alarm = loop.after(millis, what);
    }

    private void disarm() {
        if (alarm != null) {
            alarm.cancel();
            alarm = null;
        }
    }

    /** One session's process and its last event. */
    private final class Run implements SessionProcess.Listener {
        private SessionProcess process;
        private SessionEvent last;
        private boolean serving;
        private String overdue = "";

        void kill() {
            if (process != null) {
                process.kill();
            }
        }

        @Override
        public void said(SessionEvent event) {
            if (current != this || status.state == State.ENDING) {
                return; // a late event of an abandoned or ended process
            }
            last = event;
            switch (event.kind) {
                case LISTENING:
                    if (status.state == State.STARTING) {
                        disarm();
                        become(State.LISTENING, event.text, status.lastError);
                    }
                    break;
                case SERVING:
                    if (serving) {
                        break; // only one limit a session, whatever a client's code sends
                    }
                    serving = true;
                    pause = FIRST_PAUSE_MS;
                    become(State.SERVING, event.text, status.lastError);
                    int limit = Math.min(event.limitSeconds, settings.limitSeconds);
                    arm(1000L * limit, new Overdue("a session was ended after its time limit of " + limit + " s"));
                    break;
                default:
                    // Its last event: the process ends by itself, or is killed.
                    arm(END_MS, new Overdue(""));
            }
        }

        @Override
        public void ended(String how) {
            if (current != this) {
                return;
            }
            current = null;
            disarm();
            SessionEvent.Kind kind = last == null ? null : last.kind;
            if (!overdue.isEmpty() && serving) {
                next(overdue, 0, 0, 1);
            } else if (!overdue.isEmpty()) {
                retry(overdue);
            } else if (kind == SessionEvent.Kind.FINISHED) {
                next(status.lastError, 1, 0, 0);
            } else if (kind == SessionEvent.Kind.RENEW) {
                launch();
            } else if (kind == SessionEvent.Kind.FAILED) {
                retry(last.text);
            } else if (serving) {
                next("the session's process died while it served a client: " + how, 0, 1, 0);
            } else {
                retry("the session's process died before a client came: " + how);
            }
        }

        /** Counts a session that served a client, and starts the next. */
        private void next(String lastError, int served, int crashed, int hung) {
            become(State.STARTING, settings.toString(), lastError, status.served + served, status.crashed + crashed,
                    status.hung + hung);
            launch();
        }

        /** Runs if the process took too long; {@code why} is "" after its last event. */
        private final class Overdue implements Runnable {
            private final String why;

            Overdue(String why) {
                this.why = why;
            }

            @Override
            public void run() {
                overdue = why;
                if (status.state != State.ENDING) {
                    become(State.ENDING, "ending the session's process", status.lastError);
                    // Gives up a process that the system does not report as gone.
                    arm(END_MS, new Runnable() {
                        @Override
                        public void run() {
                            ended("it could not be ended");
                        }
                    });
                }
                kill();
            }
        }
    }
}
