/* Arrays of which one fills a hole and one does not. Linux and QEMU put them in different orders.
 *
 * usage: holes [LOADS]
 *
 *   ready ADDR LEN   the hot array, when all arrays are resident
 *
 * With LOADS it loads from the hot array at random and exits 0, without it waits for the end of
 * stdin. */
#include "victim.h"

#define HOT (20 * MIB)

static char *map(size_t bytes)
{
    /* A page more, as malloc's: Linux aligns other sizes, and merges none of them. */
    bytes += 4096;
    char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        die("mmap");
    for (size_t at = 0; at < bytes; at += 4096)
        ((volatile char *)start)[at] = 1;
    return start;
}

int main(int argc, char **argv)
{
    size_t loads = number_arg(argc, argv, 1, 0, 0);
    uint64_t state = 1, sum = 0;
    char *former = map(24 * MIB);
    map(64 * MIB);
    map(24 * MIB);
    munmap(former, 24 * MIB + 4096);
    map(16 * MIB);
    char *hot = map(HOT);
    say("ready %p %zu", (void *)hot, HOT);
    for (size_t i = 0; i < loads; i++) {
        state = state * UINT64_C(6364136223846793005) + 1;
        sum += ((volatile char *)hot)[(state >> 33) % HOT];
    }
    while (loads == 0 && getchar() != EOF) {
    }
    return sum == 1;
}
