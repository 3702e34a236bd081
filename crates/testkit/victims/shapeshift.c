/* A process that exits, executes a program or unmaps memory after a test has inspected it.
 *
 * usage: shapeshift exit|exec|zombie|unmap [MS=100]
 *
 *   ready ADDR LEN PID     8 huge pages' worth of filled memory; MS milliseconds later:
 *   exit                   it exits 0
 *   exec                   it executes itself, with the same PID:         execed ADDR LEN PID
 *   zombie                 PID, a child, has exited and is not reaped:    zombie PID
 *   unmap                  it unmaps the upper half of its memory:        unmapped ADDR LEN
 *
 * After the change it waits for the end of stdin. */
#include "victim.h"

static uint8_t *fill(size_t len)
{
    base_pages_only(1);
    uint8_t *memory = map_aligned(len, 0);
    fill_all(memory, len, 1);
    base_pages_only(0);
    return memory;
}

static void become_zombie(size_t len, size_t ms)
{
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0);
        say("ready %p %zu %d", (void *)fill(len), len, (int)getpid());
        sleep_ms(ms);
        _exit(0);
    }
    /* WNOWAIT keeps the zombie. */
    siginfo_t info;
    if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT))
        die("waitid");
    say("zombie %d", (int)child);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    size_t ms = number_arg(argc, argv, 2, 0, 100);
    size_t len = 8 * huge_page_size();

    if (!strcmp(mode, "zombie")) {
        become_zombie(len, ms);
    } else if (!strcmp(mode, "execed")) { /* after `exec` */
        say("execed %p %zu %d", (void *)fill(len), len, (int)getpid());
    } else {
        uint8_t *memory = fill(len);
        say("ready %p %zu %d", (void *)memory, len, (int)getpid());
        sleep_ms(ms);
        if (!strcmp(mode, "exit"))
            return 0;
        if (!strcmp(mode, "exec")) {
            execl("/proc/self/exe", argv[0], "execed", (char *)NULL);
            die("exec");
        }
        if (strcmp(mode, "unmap")) {
            errno = EINVAL;
            die("mode");
        }
        munmap(memory + len / 2, len / 2);
        say("unmapped %p %zu", (void *)(memory + len / 2), len / 2);
    }
    wait_for_end();
    return 0;
}
