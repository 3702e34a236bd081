/* A parent and a child that share every page copy-on-write, as a pre-forking server does, until one of them writes to it.
 *
 * usage: forkpair [MIB=16] [huge] [busy] [sparse]
 *
 *   ready ADDR LEN PARENT CHILD   neither has written since the fork; both sleep, or with `busy` read at random
 *   wrote N                       for each line on stdin, up to 16: N sixteenths of the pages were written again, half of these by
 *                                 the child; each region has some
 *   ok | mismatch                 when stdin ends: do both read what they should?
 *
 * With `huge` it has huge pages before the fork, made by MADV_COLLAPSE, so that khugepaged does not come. With `sparse` three
 * pages of four are zeros, also where they are written again. Exits 0 on ok, 1 on mismatch. */
#include "victim.h"

#include <poll.h>
#include <stdatomic.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define STEPS 16

/* What the two agree on. */
struct steps {
    _Atomic size_t asked, done;
};

static uint8_t *memory;
static size_t len, page_size;
static int busy, sparse;
static struct steps *steps;

static int is_zeros(size_t page)
{
    return sparse && page % 4;
}

/* Whether the parent (0) or the child (1) writes to a page when its step comes. */
static int writer_of(size_t page)
{
    return page / STEPS % 2 != 0;
}

static void write_page(size_t page, uint64_t version)
{
    uint64_t *words = (uint64_t *)(memory + page * page_size);
    if (is_zeros(page))
        for (size_t i = 0; i < page_size / sizeof *words; i++)
            ((volatile uint64_t *)words)[i] = 0;
    else
        fill_page(words, page_size, version);
}

static int is_right(size_t page, uint64_t version)
{
    const uint64_t *words = (uint64_t *)(memory + page * page_size);
    if (!is_zeros(page))
        return !wrong_word((uint64_t *)(memory + page * page_size), page_size, version);
    for (size_t i = 0; i < page_size / sizeof *words; i++)
        if (words[i])
            return 0;
    return 1;
}

/* Whether `who` reads its own new pages, and the old ones otherwise. */
static int intact(int who)
{
    for (size_t page = 0; page < len / page_size; page++) {
        int is_new = writer_of(page) == who && page % STEPS < steps->done;
        if (!is_right(page, is_new ? 2 : 1))
            return 0;
    }
    return 1;
}

static void write_step(int who, size_t step)
{
    for (size_t page = step; page < len / page_size; page += STEPS)
        if (writer_of(page) == who)
            write_page(page, 2);
}

/* Waits until there is something to read, or for `ms`; meanwhile reads memory where busy, which leaves shared pages shared. */
static int wait_on(int input, int ms)
{
    static uint64_t x = 1;
    struct pollfd fd = {.fd = input, .events = POLLIN};
    for (int reads = 0; busy && reads < 100000; reads++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
        (void)((volatile uint8_t *)memory)[(x >> 20) % len];
    }
    return poll(&fd, 1, busy ? 0 : ms) > 0;
}

static int child_lives(int leash)
{
    while (!wait_on(leash, 10))
        if (steps->asked > steps->done) {
            write_step(1, steps->done);
            steps->done++;
        }
    return intact(1) ? 0 : 1;
}

static void parent_writes(void)
{
    if (steps->asked == STEPS)
        return;
    write_step(0, steps->asked);
    steps->asked++;
    while (steps->done < steps->asked)
        sleep_ms(1);
    say("wrote %zu", steps->done);
}

static void make_memory(int huge)
{
    base_pages_only(1);
    memory = map_aligned(len, 0);
    for (size_t page = 0; page < len / page_size; page++)
        write_page(page, 1);
    base_pages_only(0);
    /* The kernel may be short of huge pages for a moment, while others collapse. */
    for (int tries = 0; huge && madvise(memory, len, MADV_COLLAPSE); tries++) {
        if (errno != EAGAIN || tries == 1000)
            die("MADV_COLLAPSE");
        usleep(10000);
    }
    int flags = MAP_SHARED | MAP_ANONYMOUS;
    steps = mmap(NULL, sizeof *steps, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (steps == MAP_FAILED)
        die("mmap");
}

int main(int argc, char **argv)
{
    len = number_arg(argc, argv, 1, 1, 16) * MIB;
    page_size = base_page_size();
    int huge = 0;
    for (int i = 2; i < argc; i++) {
        huge |= !strcmp(argv[i], "huge");
        busy |= !strcmp(argv[i], "busy");
        sparse |= !strcmp(argv[i], "sparse");
    }
    make_memory(huge);

    /* The parent holds the only writing end: when it ends, for whatever reason, the child's read returns. */
    int leash[2];
    if (pipe(leash))
        die("pipe");
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        close(leash[1]);
        _exit(child_lives(leash[0]));
    }
    close(leash[0]);
    say("ready %p %zu %d %d", (void *)memory, len, (int)getpid(), (int)child);
    for (;;) {
        if (!wait_on(STDIN_FILENO, -1))
            continue;
        if (!next_line())
            break;
        parent_writes();
    }
    close(leash[1]);

    int status = 0;
    if (waitpid(child, &status, 0) != child)
        die("waitpid");
    int ok = intact(0) && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    say(ok ? "ok" : "mismatch");
    return ok ? 0 : 1;
}
