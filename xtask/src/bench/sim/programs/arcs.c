/* Pricing loop of a network simplex, as in mcf: a scan over arcs that reads the potentials of both
 * nodes. Arguments: arcs, nodes, scans. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct arc {
    uint32_t tail, head;
    int64_t cost, flow, spare[5];
};

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    uint64_t arcs = strtoull(argv[1], NULL, 10), nodes = strtoull(argv[2], NULL, 10);
    uint64_t scans = strtoull(argv[3], NULL, 10), random = 1, found = 0;
    /* One block, because two would lie in another order under QEMU. */
    int64_t *potential = malloc(nodes * sizeof *potential + arcs * sizeof(struct arc));
    if (!potential || nodes == 0)
        return 1;
    struct arc *all = (struct arc *)(potential + nodes);
    for (uint64_t node = 0; node < nodes; node++)
        potential[node] = (int64_t)(node * 7919 % 1000);
    for (uint64_t arc = 0; arc < arcs; arc++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        all[arc] = (struct arc){ .tail = (uint32_t)((random >> 33) % nodes),
                                 .head = (uint32_t)((random >> 13) % nodes),
                                 .cost = (int64_t)(random >> 54) };
    }
    for (uint64_t scan = 0; scan < scans; scan++)
        for (uint64_t arc = 0; arc < arcs; arc++) {
            int64_t reduced = all[arc].cost - potential[all[arc].tail] + potential[all[arc].head];
            if (reduced < 0) {
                found++;
                potential[all[arc].tail]++;
            }
        }
    printf("%llu\n", (unsigned long long)found);
    return 0;
}
