// Random lookups in a HashMap<Long, Long>. Arguments: entries; one operation in this many is an
// update, 0 for none.

import java.util.HashMap;

public class RandomMap {
    private static final long EVERY_NS = 20_000_000L;
    private static final int ROUND = 1024;
    private static long random = 88172645463325252L;
    private static long sum;

    public static void main(String[] args) {
        int entries = Integer.parseInt(args[0]);
        int every = Integer.parseInt(args[1]);
        HashMap<Long, Long> table = new HashMap<>();
        for (long key = 0; key < entries; key++) {
            table.put(key, key);
        }
        System.out.println("ready");
        // checkError: the reader has gone.
        while (!System.out.checkError()) {
            long begun = System.nanoTime();
            long ops = 0;
            while (System.nanoTime() - begun < EVERY_NS) {
                round(table, entries, every);
                ops += ROUND;
            }
            System.out.println("ops " + ops);
        }
        System.exit(sum == 1 ? 1 : 0);
    }

    private static void round(HashMap<Long, Long> table, int entries, int every) {
        for (int i = 0; i < ROUND; i++) {
            random ^= random << 13;
            random ^= random >>> 7;
            random ^= random << 17;
            long key = (random >>> 1) % entries;
            if (every > 0 && i % every == 0) {
                table.put(key, random);
            } else {
                sum += table.get(key);
            }
        }
    }
}
