/* A program that detects damage to its memory.
 *
 * usage: pattern [MIB=64] [THREADS=2] [huge|random]
 *
 *   ready ADDR LEN PID   the memory is filled; ADDR is on a huge page boundary, LEN in bytes
 *   mismatch ADDR want WORD got WORD version N page-of-thread T    then exit 1
 *   ok ROUNDS            on SIGTERM or the end of stdin, after one last check of every page; exit 0
 *
 * Page p belongs to thread p mod THREADS. All threads thus write to each huge page at once while it
 * is collapsed or split, and no lock hides a race. With `random` it mostly checks words at random
 * addresses. It then stalls on memory, and a sampler finds all of the memory hot. It also
 * makes a write call for every 1000 words, by which its speed can be measured. */
#include "pages.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

static uint64_t *versions; /* of each page; used by its thread only */
static size_t threads;
static sigset_t term;
static int at_random, null_fd;

static void damaged(const uint64_t *word, uint64_t version, size_t thread)
{
    say("mismatch %p want %016" PRIx64 " got %016" PRIx64 " version %" PRIu64 " page-of-thread %zu",
        (const void *)word, pattern_at(word, version), *word, version, thread);
    _exit(1);
}

/* Checks words at random addresses in pages of `thread`. */
static void check_at_random(size_t thread, uint64_t *state)
{
    size_t words = page_size / sizeof(uint64_t), own = pages / threads;
    for (int i = 0; i < 1000; i++) {
        *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
        size_t p = thread + (*state >> 20) % own * threads;
        uint64_t *word = (uint64_t *)(memory + p * page_size) + (*state >> 50) % words;
        if (*word != pattern_at(word, versions[p]))
            damaged(word, versions[p], thread);
    }
    if (write(null_fd, "done", 4) != 4)
        die("write");
}

/* Checks every page of `thread` and, unless `last`, rewrites it in the next version. */
static void one_round(size_t thread, int last)
{
    uint64_t state = thread + 1;
    for (size_t p = thread; p < pages; p += threads) {
        if (at_random && atomic_load(&stopping) == 0)
            check_at_random(thread, &state);
        uint64_t *page = (uint64_t *)(memory + p * page_size);
        uint64_t *wrong = wrong_word(page, page_size, versions[p]);
        if (wrong)
            damaged(wrong, versions[p], thread);
        if (!last)
            fill_page(page, page_size, ++versions[p]);
    }
}

static void *work(void *arg)
{
    size_t thread = (size_t)(uintptr_t)arg, rounds = 0;
    while (!atomic_load(&stopping)) {
        one_round(thread, 0);
        rounds++;
    }
    one_round(thread, 1);
    return (void *)(uintptr_t)rounds;
}

/* Returns on SIGTERM or when stdin ends. */
static void wait_for_stop(void)
{
    int signal_fd = signalfd(-1, &term, SFD_CLOEXEC);
    if (signal_fd < 0)
        die("signalfd");
    struct pollfd fds[] = {
        {.fd = STDIN_FILENO, .events = POLLIN},
        {.fd = signal_fd, .events = POLLIN},
    };
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            die("poll");
        if (fds[1].revents)
            return;
        if (fds[0].revents && !next_line())
            return;
    }
}

int main(int argc, char **argv)
{
    size_t len = number_arg(argc, argv, 1, 1, 64) * MIB;
    threads = number_arg(argc, argv, 2, 1, 2);
    int huge = argc > 3 && !strcmp(argv[3], "huge");
    at_random = argc > 3 && !strcmp(argv[3], "random");

    null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null_fd < 0)
        die("/dev/null");

    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL); /* before the threads, which inherit it */

    page_size = base_page_size();
    pages = len / page_size;
    versions = calloc(pages, sizeof *versions);
    if (!versions)
        die("calloc");

    base_pages_only(!huge);
    memory = map_aligned(len, huge);
    fill_all(memory, len, 0);
    base_pages_only(0);
    say("ready %p %zu %d", (void *)memory, len, (int)getpid());

    say("ok %zu", rounds_of(threads, work, wait_for_stop));
    return 0;
}
