// A graph of objects, built by four threads, walked, changed and partly dropped,
// with much short-lived garbage. Prints a checksum after each step.

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;

public class Graph {
    static final int THREADS = 4;

    static final class Node {
        long id;
        String name;
        int[] values;
        Node next;
    }

    interface Part {
        void run(int index) throws Exception;
    }

    static Node make(int id) {
        Node node = new Node();
        node.id = id;
        node.name = "node " + (id * 7919L % 1000003);
        node.values = new int[40 + id % 17];
        for (int i = 0; i < node.values.length; i++) node.values[i] = id + i / 4;
        return node;
    }

    static long mix(long total, long value) {
        total = (total ^ value) * 0x9E3779B97F4A7C15L;
        return total ^ (total >>> 29);
    }

    static long checksum(Node[] nodes, int from, int to) {
        long total = 1;
        for (int i = from; i < to; i++) {
            Node node = nodes[i];
            total = mix(total, node.id);
            total = mix(total, node.name.hashCode());
            for (int value : node.values) total = mix(total, value);
            total = mix(total, node.next.id);
        }
        return total;
    }

    static void inParallel(Part part) throws Exception {
        List<Thread> threads = new ArrayList<>();
        List<Throwable> failures = new ArrayList<>();
        for (int t = 0; t < THREADS; t++) {
            int index = t;
            Thread thread = new Thread(() -> {
                try {
                    part.run(index);
                } catch (Throwable failure) {
                    synchronized (failures) {
                        failures.add(failure);
                    }
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) thread.join();
        if (!failures.isEmpty()) throw new Exception(failures.get(0));
    }

    static void show(String what, Node[] nodes) throws Exception {
        long[] totals = new long[THREADS];
        int share = nodes.length / THREADS;
        inParallel(t -> totals[t] = checksum(nodes, t * share, (t + 1) * share));
        long total = 0;
        for (long part : totals) total = mix(total, part);
        System.out.printf("%s %016x%n", what, total);
    }

    public static void main(String[] words) throws Exception {
        int count = Integer.parseInt(words[0]) / THREADS * THREADS;
        int share = count / THREADS;
        Node[] nodes = new Node[count];
        inParallel(t -> {
            for (int i = t * share; i < (t + 1) * share; i++) nodes[i] = make(i);
        });
        for (int i = 0; i < count; i++) nodes[i].next = nodes[(int) (i * 2654435761L % count)];
        show("built", nodes);

        Map<String, Node> index = new HashMap<>();
        for (int i = 0; i < count; i += 8) index.put(nodes[i].name + "/" + i, nodes[i]);
        long found = 0;
        for (int i = 0; i < count; i += 8) {
            found = mix(found, index.get("node " + (i * 7919L % 1000003) + "/" + i).id);
        }
        System.out.printf("found %016x%n", found);

        // Garbage beside changes to what is old.
        inParallel(t -> {
            for (int i = t * share; i < (t + 1) * share; i++) {
                Node fresh = make(i + 1);
                if (i % 3 == 0) {
                    nodes[i].values = fresh.values;
                    nodes[i].name = fresh.name.toUpperCase();
                }
            }
        });
        show("changed", nodes);
        index.clear();
        System.gc();
        show("collected", nodes);

        ByteBuffer buffer = ByteBuffer.allocateDirect(16 << 20);
        for (int i = 0; i < buffer.capacity() / 8; i++) buffer.putLong(i * 8, i / 16);
        Node at = nodes[0];
        long total = 0;
        for (int i = 0; i < 20000; i++) {
            total = mix(total, at.id + buffer.getLong(i * 8));
            at = nodes[(int) Long.remainderUnsigned(total, count)].next;
        }
        System.out.printf("walked %016x%n", total);
        CRC32 sum = new CRC32();
        sum.update(buffer);
        System.out.printf("buffer %08x%n", sum.getValue());
        show("again", nodes);
    }
}
