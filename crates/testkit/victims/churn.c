/* A program that zeroes, rewrites and collapses its pages, and detects damage to them.
 *
 * usage: churn threads|mprotect|fork|mlock|userfaultfd [MIB=64]
 *
 *   threads       two threads, each with every second base page, so that both write to each huge
 *                 page
 *   mprotect      two threads, each with every second huge page; they change its protection
 *   fork          one thread, and a sequence of children that check all pages while it writes
 *   mlock         like threads, in locked memory
 *   userfaultfd   like threads, in memory with a userfaultfd for missing pages; the threads
 *                 discard some pages
 *
 *   ready ADDR LEN PID | unable WHY
 *   damaged ADDR want WORD got WORD version N        then exit 1
 *   ok ROUNDS            when stdin ends, after one last check of every page; exit 0 */
#include "pages.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

static size_t threads = 2, unit = 1; /* consecutive base pages of the same thread */
static int protects, forks, discards;

static void protect(size_t page, size_t count, int protection)
{
    if (mprotect(words_of(page), count * page_size, protection))
        die("mprotect");
}

/* Removes the permissions of a huge page step by step, checks it, and restores them. */
static void change_protection(size_t page, uint64_t *state)
{
    protect(page, per_huge, PROT_READ);
    for (size_t i = 0; i < per_huge; i++)
        check(page + i);
    protect(page, per_huge, PROT_NONE);
    protect(page, per_huge, PROT_READ | PROT_WRITE);
    /* The protection of a single base page splits the mapping. */
    if (next_random(state) % 8 == 0) {
        size_t one = page + next_random(state) % per_huge;
        protect(one, 1, PROT_READ);
        check(one);
        protect(one, 1, PROT_READ | PROT_WRITE);
    }
}

static void discard(size_t page)
{
    if (madvise(words_of(page), page_size, MADV_DONTNEED))
        die("MADV_DONTNEED");
    contents[page].version = 0;
}

static pid_t start_child(void)
{
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child)
        return child;
    for (size_t page = 0; page < pages; page++)
        if (!is_right(page))
            _exit(1);
    _exit(0);
}

static void end_child(pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) != child)
        die("waitpid");
    if (status)
        _exit(1);
}

/* Checks every page of `thread` and, unless `last`, changes some. */
static void one_round(size_t thread, uint64_t *state, int last)
{
    for (size_t page = 0; page < pages; page++) {
        if (page / unit % threads != thread)
            continue;
        if (protects && !last && page % per_huge == 0)
            change_protection(page, state);
        check(page);
        if (!last)
            churn_page(page, state);
        if (discards && !last && next_random(state) % 8192 == 0)
            discard(page);
    }
    if (!last)
        collapse(thread, threads);
}

static void *work(void *arg)
{
    size_t thread = (size_t)(uintptr_t)arg, rounds = 0;
    uint64_t state = thread + 1;
    while (!atomic_load(&stopping)) {
        pid_t child = forks && rounds % 2 ? start_child() : 0;
        one_round(thread, &state, 0);
        if (child)
            end_child(child);
        rounds++;
    }
    one_round(thread, &state, 1);
    return (void *)(uintptr_t)rounds;
}

/* Fills discarded pages with zeros, for ever. */
static void *fill_missing(void *arg)
{
    int fd = (int)(uintptr_t)arg;
    struct uffd_msg message;
    while (read(fd, &message, sizeof message) == sizeof message) {
        uint64_t start = message.arg.pagefault.address / page_size * page_size;
        struct uffdio_zeropage zero = {.range = {.start = start, .len = page_size}};
        if (message.event != UFFD_EVENT_PAGEFAULT)
            continue;
        if (ioctl(fd, UFFDIO_ZEROPAGE, &zero) && errno != EEXIST)
            die("UFFDIO_ZEROPAGE");
    }
    die("userfaultfd");
    return NULL;
}

static void watch_for_missing(void)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register all = {.range = {.start = (uintptr_t)memory, .len = pages * page_size},
                                  .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &all))
        unable("userfaultfd");
    pthread_t filler;
    if ((errno = pthread_create(&filler, NULL, fill_missing, (void *)(uintptr_t)fd)))
        die("pthread_create");
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    make_pages(number_arg(argc, argv, 2, 4, 64) * MIB);
    protects = !strcmp(mode, "mprotect");
    forks = !strcmp(mode, "fork");
    discards = !strcmp(mode, "userfaultfd");
    unit = protects ? per_huge : 1;
    threads = forks ? 1 : 2;
    if (discards)
        watch_for_missing();
    if (!strcmp(mode, "mlock") && mlock(memory, pages * page_size))
        unable("mlock");
    say("ready %p %zu %d", (void *)memory, pages * page_size, (int)getpid());

    say("ok %zu", rounds_of(threads, work, wait_for_end));
    return 0;
}
