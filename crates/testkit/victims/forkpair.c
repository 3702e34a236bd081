/* A parent and a child that share every page copy-on-write, as a pre-forking server does.
 *
 * usage: forkpair [MIB=16] [huge]
 *
 *   ready ADDR LEN PARENT CHILD   both sleep; neither has written since the fork
 *   ok | mismatch                 when stdin ends: do both still read what was written before the fork?
 *
 * Exits 0 on ok, 1 on mismatch. */
#include "victim.h"

static int intact(uint8_t *memory, size_t len)
{
    size_t page = base_page_size();
    for (size_t at = 0; at < len; at += page)
        if (wrong_word((uint64_t *)(memory + at), page, 1))
            return 0;
    return 1;
}

int main(int argc, char **argv)
{
    size_t len = number_arg(argc, argv, 1, 1, 16) * MIB;
    int huge = argc > 2 && !strcmp(argv[2], "huge");

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
        char byte;
        close(leash[1]);
        while (read(leash[0], &byte, 1) < 0 && errno == EINTR)
            ;
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
