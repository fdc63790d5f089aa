import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Kafka's command line tools in one JVM, one after the other or side by side: the start of a JVM costs more than most tools do.
 *
 * Each line of standard input is a request, each line of standard output says that a run has ended:
 *
 *   {"id": 1, "main": CLASS, "args": [...], "in": FILE, "out": FILE, "err": FILE}   runs a tool; out and err may be one file
 *   {"id": 1, "stop": true}                                                         ends it as SIGTERM does
 *   {"id": 1, "status": 0}                                                          its exit status
 *
 * A run has its own streams, exit status and shutdown hooks, and its own copy of the tools' classes, whose static fields count
 * messages and the like. The classes of the clients are shared and stay warm. Tools that call System.exit themselves (the
 * verifiable clients) can't run here.
 */
public final class Tools {
    private static final InheritableThreadLocal<Run> CURRENT = new InheritableThreadLocal<>();
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<Integer, Run> RUNS = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setIn(new CurrentInput());
        System.setOut(new PrintStream(new CurrentOutput(false), true));
        System.setErr(new PrintStream(new CurrentOutput(true), true));
        Exit.setExitProcedure((status, message) -> CURRENT.get().exit(status));
        Exit.setHaltProcedure((status, message) -> CURRENT.get().exit(status));
        Exit.setShutdownHookAdder((name, hook) -> CURRENT.get().addHook(hook));
        for (String line; (line = requests.readLine()) != null; ) {
            JsonNode request = JSON.readTree(line);
            int id = request.get("id").asInt();
            if (request.has("stop")) {
                RUNS.get(id).stop();
                continue;
            }
            Run run = new Run(request);
            RUNS.put(id, run);
            Thread thread = new Thread(() -> {
                CURRENT.set(run);
                int status = run.call();
                synchronized (answers) {
                    answers.println("{\"id\": " + id + ", \"status\": " + status + "}");
                }
            }, "main");
            thread.start();
        }
        System.exit(0);
    }

    /** Unwinds the thread of a tool that has ended itself. */
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static final class Run {
        final JsonNode request;
        final InputStream in;
        final OutputStream out;
        final OutputStream err;
        final List<Thread> hooks = new ArrayList<>();
        private int status;
        private volatile boolean unwinding;

        Run(JsonNode request) throws IOException {
            this.request = request;
            in = request.has("in") ? new FileInputStream(request.get("in").asText()) : InputStream.nullInputStream();
            out = new FileOutputStream(request.get("out").asText());
            boolean same = request.get("out").equals(request.get("err"));
            err = same ? out : new FileOutputStream(request.get("err").asText());
        }

        int call() {
            try (in; out; err; Classes classes = new Classes()) {
                Thread.currentThread().setContextClassLoader(classes);
                String[] args = JSON.convertValue(request.get("args"), String[].class);
                try {
                    classes.loadClass(request.get("main").asText()).getMethod("main", String[].class).invoke(null, (Object) args);
                } catch (InvocationTargetException e) {
                    if (!unwinding) {
                        System.err.print("Exception in thread \"main\" ");
                        e.getCause().printStackTrace();
                        status = 1;
                    }
                }
                unwinding = false;
                runHooks();
            } catch (ReflectiveOperationException | IOException | InterruptedException e) {
                e.printStackTrace();
                status = 1;
            }
            return status;
        }

        synchronized void addHook(Runnable hook) {
            hooks.add(new Thread(() -> {
                CURRENT.set(this);
                hook.run();
            }));
        }

        // What a tool does while its stack unwinds, which in a JVM of its own it would not live to do, is not seen.
        void exit(int status) {
            if (!unwinding) {
                unwinding = true;
                this.status = status;
            }
            throw new Ended();
        }

        boolean isSilent() {
            return unwinding;
        }

        void stop() {
            startHooks();
        }

        private synchronized void startHooks() {
            for (Thread hook : hooks) {
                if (hook.getState() == Thread.State.NEW) {
                    hook.start();
                }
            }
        }

        private void runHooks() throws InterruptedException {
            startHooks();
            for (Thread hook : hooks) {
                hook.join();
            }
        }
    }

    /** Loads the tools' own classes afresh. */
    private static final class Classes extends URLClassLoader {
        private static final String TOOLS = "org.apache.kafka.tools.";
        private static final URL[] JAR = {jar()};

        Classes() {
            super(JAR, Tools.class.getClassLoader());
        }

        private static URL jar() {
            try {
                return Class.forName(TOOLS + "TopicCommand").getProtectionDomain().getCodeSource().getLocation();
            } catch (ClassNotFoundException e) {
                throw new IllegalStateException(e);
            }
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                if (loaded != null) {
                    return loaded;
                }
                if (name.startsWith(TOOLS)) {
                    try {
                        return findClass(name);
                    } catch (ClassNotFoundException e) {
                        // Its interfaces live in a jar that is shared.
                    }
                }
                return super.loadClass(name, resolve);
            }
        }
    }

    private static final class CurrentInput extends InputStream {
        @Override
        public int read() throws IOException {
            return CURRENT.get().in.read();
        }

        @Override
        public int read(byte[] bytes, int offset, int length) throws IOException {
            return CURRENT.get().in.read(bytes, offset, length);
        }

        @Override
        public int available() throws IOException {
            return CURRENT.get().in.available();
        }
    }

    private static final class CurrentOutput extends OutputStream {
        private final boolean error;

        CurrentOutput(boolean error) {
            this.error = error;
        }

        @Override
        public void write(int b) throws IOException {
            write(new byte[] {(byte) b}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            Run run = CURRENT.get();
            if (run != null && !run.isSilent()) {
                (error ? run.err : run.out).write(bytes, offset, length);
            }
        }
    }
}
