/* A parent and a child that share every page copy-on-write, as a pre-forking server does.
 *
 * usage: forkpair [MIB=16] [huge|busy]
 *
 *   ready ADDR LEN PARENT CHILD   neither has written since the fork; both sleep, or with `busy` the child reads at random
 *   ok | mismatch                 when stdin ends: do both still read what was written before the fork?
 *
 * Exits 0 on ok, 1 on mismatch. */
#include "victim.h"

#include <poll.h>

static int intact(uint8_t *memory, size_t len)
{
    size_t page = base_page_size();
    for (size_t at = 0; at < len; at += page)
        if (wrong_word((uint64_t *)(memory + at), page, 1))
            return 0;
    return 1;
}

/* Waits until the leash is let go; meanwhile reads, which leaves shared pages shared. */
static void wait_on(int leash, const volatile uint8_t *memory, size_t len, int busy)
{
    struct pollfd fd = {.fd = leash, .events = POLLIN};
    uint64_t x = 1;
    while (poll(&fd, 1, busy ? 0 : -1) <= 0)
        for (int reads = 0; reads < 100000; reads++) {
            x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
            (void)memory[(x >> 20) % len];
        }
}

int main(int argc, char **argv)
{
    size_t len = number_arg(argc, argv, 1, 1, 16) * MIB;
    int huge = argc > 2 && !strcmp(argv[2], "huge");
    int busy = argc > 2 && !strcmp(argv[2], "busy");

    base_pages_only(!huge);
    uint8_t *memory = map_aligned(len, huge);
    fill_all(memory, len, 1);
    base_pages_only(0);

    /* The parent holds the only writing end: when it ends, for whatever reason, the child's read returns. */
    int leash[2];
    if (pipe(leash))
        die("pipe");
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        close(leash[1]);
        wait_on(leash[0], memory, len, busy);
        _exit(intact(memory, len) ? 0 : 1);
    }
    close(leash[0]);
    say("ready %p %zu %d %d", (void *)memory, len, (int)getpid(), (int)child);
    wait_for_end();
    close(leash[1]);

    int status = 0;
    if (waitpid(child, &status, 0) != child)
        die("waitpid");
    int ok = intact(memory, len) && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    say(ok ? "ok" : "mismatch");
    return ok ? 0 : 1;
}
