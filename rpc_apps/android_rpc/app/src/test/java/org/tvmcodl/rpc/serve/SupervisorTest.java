package org.tvmcodl.rpc.serve;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.Before;
import org.junit.Test;
import org.tvmcodl.rpc.serve.SessionEvent.Kind;

public final class SupervisorTest {
    /** A process that does what the test says; killed ones end when the test says so, unless they are obedient. */
    private static final class Process implements SessionProcess {
        final Listener listener;
        boolean killed;

        Process(Listener listener) {
            this.listener = listener;
        }

        @Override
        public void kill() {
            killed = true;
        }
    }

    private final HandLoop loop = new HandLoop();
    private final List<Process> started = new ArrayList<>();
    private final List<State> seen = new ArrayList<>();
    private boolean refuse;
    private Supervisor supervisor;
    private Settings settings;

    @Before
    public void prepare() throws SettingsError {
        settings = Settings.of("proxy", "127.0.0.1", "9090", "pixel", "100");
        supervisor = new Supervisor(loop, (chosen, listener) -> {
            if (refuse) {
                throw new IOException("no memory");
            }
            started.add(new Process(listener));
            return last();
        }, status -> seen.add(status.state));
    }

    private Process last() {
        return started.get(started.size() - 1);
    }

    private void say(Kind kind, int limit, String text) {
        last().listener.said(new SessionEvent(kind, limit, text));
    }

    private void serving(int limit) {
        say(Kind.LISTENING, 0, "here");
        say(Kind.SERVING, limit, "a client");
    }

    private void shows(State state, int served, int crashed, int hung, String error) {
        Status status = supervisor.status();
        assertEquals(status.toString(), state, status.state);
        assertEquals(status.toString(), served + "," + crashed + "," + hung,
                status.served + "," + status.crashed + "," + status.hung);
        assertTrue(status.toString(), status.lastError.contains(error));
        assertEquals(status.toString(), error.isEmpty(), status.lastError.isEmpty());
    }

    @Test
    public void aSessionInGoodOrderIsFollowedByTheNext() {
        supervisor.start(settings);
        serving(0x7fffffff);
        shows(State.SERVING, 0, 0, 0, "");
        say(Kind.FINISHED, 0, "");
        assertEquals(1, started.size());
        last().listener.ended("exit code 0");
        shows(State.STARTING, 1, 0, 0, "");
        assertEquals(2, started.size());
        assertEquals(List.of(State.STARTING, State.LISTENING, State.SERVING, State.STARTING), seen.subList(0, 4));
    }

    @Test
    public void aCrashIsNoticedAndItListensAgain() {
        supervisor.start(settings);
        serving(50);
        last().listener.ended("exit code 139");
        shows(State.STARTING, 0, 1, 0, "exit code 139");
        say(Kind.LISTENING, 0, "here");
        // The error stays on the screen until the next one.
        shows(State.LISTENING, 0, 1, 0, "exit code 139");
    }

    @Test
    public void aHungSessionIsEndedAtItsLimitAndNotBefore() {
        supervisor.start(settings);
        serving(50);
        loop.turn(49_999);
        assertTrue(!last().killed);
        loop.turn(1);
        assertTrue(last().killed);
        shows(State.ENDING, 0, 0, 0, "");
        last().listener.ended("exit code 137");
        shows(State.STARTING, 0, 0, 1, "time limit of 50 s");
        assertEquals(2, started.size());
    }

    @Test
    public void noSessionIsLongerThanTheSettingsAllow() {
        supervisor.start(settings);
        serving(5000);
        // Code that a client sent could say anything: it gets no more time.
        say(Kind.SERVING, 5000, "again");
        say(Kind.LISTENING, 0, "again");
        loop.turn(100_000);
        assertTrue(last().killed);
    }

    @Test
    public void aProcessThatCannotBeEndedIsGivenUp() {
        supervisor.start(settings);
        serving(50);
        loop.turn(50_000 + Supervisor.END_MS);
        assertEquals(2, started.size());
        shows(State.STARTING, 0, 0, 1, "time limit");
        // Its end comes late, and is not the next one's.
        started.get(0).listener.ended("exit code 137");
        shows(State.STARTING, 0, 0, 1, "time limit");
        assertEquals(2, started.size());
    }

    @Test
    public void aProcessThatLingersAfterItsLastWordIsEnded() {
        supervisor.start(settings);
        serving(50);
        say(Kind.FINISHED, 0, "");
        loop.turn(Supervisor.END_MS);
        assertTrue(last().killed);
        last().listener.ended("exit code 137");
        shows(State.STARTING, 1, 0, 0, "");
    }

    @Test
    public void failuresInARowWaitLongerAndLongerAndAClientEndsThat() {
        supervisor.start(settings);
        for (long pause : new long[] {1000, 2000, 4000, 8000, 16000, 30000, 30000}) {
            say(Kind.FAILED, 0, "the proxy cannot be reached");
            last().listener.ended("exit code 0");
            shows(State.WAITING, 0, 0, 0, "the proxy cannot be reached");
            int before = started.size();
            loop.turn(pause - 1);
            assertEquals(before, started.size());
            loop.turn(1);
            assertEquals(before + 1, started.size());
        }
        serving(50);
        last().listener.ended("exit code 1");
        last().listener.ended("exit code 1");
        shows(State.WAITING, 0, 1, 0, "died before a client came");
        int before = started.size();
        loop.turn(1000);
        assertEquals(before + 1, started.size());
    }

    @Test
    public void aProcessThatDoesNotStartIsTriedAgain() {
        refuse = true;
        supervisor.start(settings);
        shows(State.WAITING, 0, 0, 0, "no memory");
        refuse = false;
        loop.turn(1000);
        shows(State.STARTING, 0, 0, 0, "no memory");
    }

    @Test
    public void aProcessThatNeverRegistersIsEnded() {
        supervisor.start(settings);
        loop.turn(Supervisor.START_MS);
        assertTrue(last().killed);
        last().listener.ended("exit code 137");
        shows(State.WAITING, 0, 0, 0, "did not register");
    }

    @Test
    public void aRegistrationIsRenewedAtOnceAndIsNoError() {
        supervisor.start(settings);
        say(Kind.LISTENING, 0, "here");
        loop.turn(Listener.RENEW_MS);
        say(Kind.RENEW, 0, "nobody came");
        last().listener.ended("exit code 0");
        shows(State.STARTING, 0, 0, 0, "");
    }

    @Test
    public void stoppingEndsTheSessionAndNothingFollows() {
        supervisor.start(settings);
        serving(50);
        supervisor.stop();
        assertTrue(last().killed);
        last().listener.ended("exit code 137");
        shows(State.STOPPED, 0, 0, 0, "");
        assertEquals(0, loop.waiting());
        loop.turn(1_000_000);
        assertEquals(1, started.size());
    }

    @Test
    public void startingAgainEndsWhatRan() throws SettingsError {
        supervisor.start(settings);
        serving(50);
        supervisor.start(Settings.of("tracker", "127.0.0.1", "9190", "pixel", "100"));
        assertTrue(started.get(0).killed);
        assertEquals(2, started.size());
        started.get(0).listener.said(new SessionEvent(Kind.LISTENING, "old"));
        started.get(0).listener.ended("exit code 137");
        shows(State.STARTING, 0, 0, 0, "");
    }

    /** Whatever comes in whatever order: no illegal change of state (become() throws), and it can always be stopped. */
    @Test
    public void anyOrderOfEventsKeepsTheStateMachineLegal() {
        for (int seed = 0; seed < 500; seed++) {
            Random random = new Random(seed);
            supervisor.start(settings);
            for (int step = 0; step < 60; step++) {
                Process any = started.get(Math.max(0, started.size() - 1 - random.nextInt(2)));
                switch (random.nextInt(5)) {
                    case 0:
                        any.listener.ended("exit code " + random.nextInt(140));
                        break;
                    case 1:
                        loop.turn(random.nextInt(120_000));
                        break;
                    case 2:
                        refuse = random.nextInt(3) == 0;
                        break;
                    default:
                        Kind kind = Kind.values()[random.nextInt(Kind.values().length)];
                        any.listener.said(new SessionEvent(kind, random.nextInt(200), "x"));
                }
            }
            refuse = false;
            supervisor.stop();
            assertEquals(State.STOPPED, supervisor.status().state);
            assertEquals(0, loop.waiting());
        }
    }
}
