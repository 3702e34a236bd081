/* A parent and a child that share pages copy-on-write until either writes, as a pre-forking
 * server does.
 *
 * usage: forkpair [MIB=16] [huge] [busy] [sparse]
 *
 *   ready ADDR LEN PARENT CHILD   neither has written since the fork
 *   wrote N                       after each line on stdin, at most 16: N sixteenths of the pages
 *                                 are rewritten in each region, half of them by the child
 *   ok | mismatch                 at the end of stdin: whether both read the right words
 *
 *   huge     collapses the memory before the fork by MADV_COLLAPSE, without khugepaged
 *   busy     both read at random; otherwise they sleep
 *   sparse   three of four pages are zero-filled, also after a rewrite
 *
 * Exits 0 on ok, 1 on mismatch. */
#include "victim.h"

#include <poll.h>
#include <stdatomic.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define STEPS 16

/* Progress of both processes, in shared memory. */
struct steps {
    _Atomic size_t requested, done;
};

static uint8_t *memory;
static size_t len, page_size;
static int busy, sparse;
static struct steps *steps;

static int is_zeros(size_t page)
{
    return sparse && page % 4;
}

/* The writer of a page in its step: the parent (0) or the child (1). */
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

/* Whether `process` reads the new words of its own rewritten pages, and the old words elsewhere. */
static int intact(int process)
{
    for (size_t page = 0; page < len / page_size; page++) {
        int is_new = writer_of(page) == process && page % STEPS < steps->done;
        if (!is_right(page, is_new ? 2 : 1))
            return 0;
    }
    return 1;
}

static void write_step(int process, size_t step)
{
    for (size_t page = step; page < len / page_size; page += STEPS)
        if (writer_of(page) == process)
            write_page(page, 2);
}

/* Waits at most `ms` for input. If busy, it also reads memory, which keeps shared pages shared. */
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
        if (steps->requested > steps->done) {
            write_step(1, steps->done);
            steps->done++;
        }
    return intact(1) ? 0 : 1;
}

static void parent_writes(void)
{
    if (steps->requested == STEPS)
        return;
    write_step(0, steps->requested);
    steps->requested++;
    while (steps->done < steps->requested)
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
    /* Huge pages can be short for a moment while other processes collapse. */
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

    /* The parent holds the only write end. However it ends, the child's read then returns. */
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
