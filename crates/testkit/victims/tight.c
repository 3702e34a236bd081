/* A program with sparse memory that later allocates a little more. In a tight cgroup, huge pages
 * in place of its holes use up the limit, and the kernel kills it.
 *
 * usage: tight [REGIONS=16] [EVERY=32] [GROW_MIB=3] [busy]
 *
 *   ready ADDR LEN PID   one base page of EVERY is touched in each of REGIONS regions
 *                        with `busy` it reads them at random until it grows
 *   grown MIB            after each MiB, once it has read a line from stdin
 *   done                 GROW_MIB are allocated; exit 0
 *
 * Exits 0 as well if stdin ends without a line. */
#include "victim.h"

#include <poll.h>

/* Reads the touched pages at random until stdin has input. */
static void read_until_input(const volatile uint8_t *memory, size_t touched, size_t step)
{
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    uint64_t x = 1;
    while (poll(&fd, 1, 0) <= 0)
        for (int reads = 0; reads < 100000; reads++) {
            x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
            (void)memory[(x >> 20) % touched * step];
        }
}

int main(int argc, char **argv)
{
    size_t len = number_arg(argc, argv, 1, 1, 16) * huge_page_size();
    size_t every = number_arg(argc, argv, 2, 1, 32);
    size_t grow = number_arg(argc, argv, 3, 0, 3);
    size_t page = base_page_size();

    base_pages_only(1);
    uint8_t *memory = map_aligned(len, 0);
    for (size_t at = 0; at < len; at += every * page)
        memory[at] = 1;
    base_pages_only(0);
    say("ready %p %zu %d", (void *)memory, len, (int)getpid());

    if (argc > 4 && !strcmp(argv[4], "busy"))
        read_until_input(memory, len / (every * page), every * page);
    if (!next_line())
        return 0;
    for (size_t mib = 1; mib <= grow; mib++) {
        uint8_t *more = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (more == MAP_FAILED)
            die("mmap");
        memset(more, 1, MIB);
        say("grown %zu", mib);
    }
    say("done");
    return 0;
}
