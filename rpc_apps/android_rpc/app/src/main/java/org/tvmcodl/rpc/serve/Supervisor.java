package org.tvmcodl.rpc.serve;

import java.io.IOException;

/**
 * Keeps one session's process after another running: notices one that died, ends one that takes longer than its time
 * limit, and goes back to listening.
 *
 * <p>All methods and callbacks run on the {@link Loop}'s thread.
 */
public final class Supervisor {
    /** A process has to register within this time, and to be gone within {@link #END_MS} of its last word. */
    public static final long START_MS = 60000;

    public static final long END_MS = 5000;

    /** Told of every change. */
    public interface Watcher {
        void changed(Status status);
    }

    private final Loop loop;
    private final SessionProcess.Starter starter;
    private final Watcher watcher;
    private final BackOff backOff = new BackOff();

    private Settings settings;
    private Status status = Status.stopped();
    private Run current;
    private Loop.Alarm alarm;

    public Supervisor(Loop loop, SessionProcess.Starter starter, Watcher watcher) {
        this.loop = loop;
        this.starter = starter;
        this.watcher = watcher;
    }

    public Status status() {
        return status;
    }

    /** Serves with these settings; ends a session under other ones first.  Counts start from nothing. */
    public void start(Settings settings) {
        stop();
        this.settings = settings;
        status = Status.stopped();
        backOff.succeeded();
        launch();
    }

    /** Ends the session, if there is one, and serves no more. */
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
        long pause = backOff.failed();
        become(State.WAITING, "next try in " + pause / 1000 + " s", error);
        arm(pause, new Runnable() {
            @Override
            public void run() {
                launch();
            }
        });
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

    /** One session's process and what it said last. */
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
                return; // what an abandoned or ended process still had to say
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
                        break; // one limit for each session, whatever code that a client sent may say
                    }
                    serving = true;
                    backOff.succeeded();
                    become(State.SERVING, event.text, status.lastError);
                    int limit = Math.min(event.limitSeconds, settings.limitSeconds);
                    arm(1000L * limit, new Overdue("a session was ended after its time limit of " + limit + " s"));
                    break;
                default:
                    // Its last word: the process ends by itself, or is made to.
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
            int served = status.served;
            int crashed = status.crashed;
            int hung = status.hung;
            if (!overdue.isEmpty()) {
                if (serving) {
                    become(State.STARTING, settings.toString(), overdue, served, crashed, hung + 1);
                    launch();
                } else {
                    retry(overdue);
                }
            } else if (last != null && last.kind == SessionEvent.Kind.FINISHED) {
                become(State.STARTING, settings.toString(), status.lastError, served + 1, crashed, hung);
                launch();
            } else if (last != null && last.kind == SessionEvent.Kind.RENEW) {
                launch();
            } else if (last != null && last.kind == SessionEvent.Kind.FAILED) {
                retry(last.text);
            } else if (serving) {
                String error = "the session's process died while it served a client: " + how;
                become(State.STARTING, settings.toString(), error, served, crashed + 1, hung);
                launch();
            } else {
                retry("the session's process died before a client came: " + how);
            }
        }

        /** Runs where the process took too long; {@code why} is "" where it had nothing more to do. */
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
                    // A process that the system does not report as gone is given up.
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
