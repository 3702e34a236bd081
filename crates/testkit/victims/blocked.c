/* A program that stalls on memory that `tune` does not promote.
 *
 * usage: blocked KIND [MIB=128] [huge]
 *
 *   KIND: locked     mlock
 *         forked     a child shares it since a fork
 *         merged     KSM merges it (PR_SET_MEMORY_MERGE), when ksm/run is 1
 *         guards     a guard page in each 512 KiB (MADV_GUARD_INSTALL)
 *         pinned     registered with io_uring, so that the kernel pins it
 *         shared     a memfd, mapped shared
 *         file       a file of the current folder, mapped privately and only read
 *         disabled   PR_SET_THP_DISABLE, set by a parent that starts this program
 *         forbidden  MADV_NOHUGEPAGE
 *         small      mappings of 1 MiB between unreadable pages
 *         forking    read and written; each 300 ms it forks a child that lives for 100 ms
 *         flashing   as forking, but each child ends at once
 *         snapshot   forked a child once, which ended
 *         plain      none of these
 *         launcher   sets PR_SET_THP_DISABLE and becomes the program of the other arguments
 *
 *   ready ADDR LEN PID   the memory is read at random until the end of stdin; exit 0
 *   lost N               N guards are gone; exit 1
 *   missing WHAT         the kernel lacks it; exit 0 */
#include "victim.h"

#include <linux/io_uring.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define GUARD_EVERY ((size_t)512 << 10)
#define SMALL ((size_t)1 << 20)

static sigjmp_buf back;

static void hit(int number)
{
    siglongjmp(back, number);
}

static void missing(const char *what)
{
    say("missing %s", what);
    exit(0);
}

/* Guards that are gone. */
static size_t lost_guards(const uint8_t *memory, size_t size)
{
    volatile size_t lost = 0;
    signal(SIGSEGV, hit);
    for (volatile size_t at = 0; at < size; at += GUARD_EVERY)
        if (!sigsetjmp(back, 1)) {
            (void)*(const volatile uint8_t *)(memory + at);
            lost++; /* Without a signal. */
        }
    return lost;
}

static void pin(uint8_t *memory, size_t size)
{
    struct io_uring_params params = {0};
    struct iovec whole = {memory, size};
    int ring = (int)syscall(__NR_io_uring_setup, 8, &params);
    if (ring < 0 || syscall(__NR_io_uring_register, ring, IORING_REGISTER_BUFFERS, &whole, 1))
        missing("io_uring");
}

static uint8_t *map_file(size_t size, int shared)
{
    char name[] = "blocked.XXXXXX";
    int file = shared ? memfd_create("blocked", 0) : mkstemp(name);
    if (file < 0 || (!shared && unlink(name)))
        die("file");
    for (size_t at = 0; at < size; at += MIB) {
        static uint8_t block[1 << 20] = {1};
        if (write(file, block, sizeof block) != sizeof block)
            die("write");
    }
    uint8_t *memory =
        mmap(NULL, size, PROT_READ, shared ? MAP_SHARED : MAP_PRIVATE, file, 0);
    if (memory == MAP_FAILED)
        die("mmap");
    return memory;
}

/* Forks a child that lives for this time, if the last one is older than 300 ms. */
static void fork_each(useconds_t lives)
{
    static uint64_t last;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t millis = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    if (millis - last < 300)
        return;
    last = millis;
    signal(SIGCHLD, SIG_IGN);
    if (!fork()) {
        usleep(lives);
        _exit(0);
    }
}

/* Maps the memory by itself in parts, which unreadable pages keep apart. */
static uint8_t *map_small(size_t size)
{
    uint8_t *memory = map_aligned(size, 1);
    for (size_t at = 0; at < size; at += SMALL)
        if (mprotect(memory + at, base_page_size(), PROT_NONE))
            die("mprotect");
    return memory;
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "plain";
#define IS(name) (!strcmp(kind, name))
    int is_disabled = !strcmp(kind, "disabled"), may_be_huge = argc > 3 && !strcmp(argv[3], "huge");
    if (IS("launcher")) {
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
        execv(argv[2], argv + 2);
        die("execv");
    }
    if (is_disabled && !may_be_huge && !getenv("STARTED")) {
        setenv("STARTED", "1", 1);
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
        if (!fork()) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            execv("/proc/self/exe", argv);
            die("execv");
        }
        wait(NULL);
        return 0;
    }
    size_t page = base_page_size(), size = number_arg(argc, argv, 2, 1, 128) * MIB;
    if (IS("merged") && prctl(67 /* PR_SET_MEMORY_MERGE */, 1, 0, 0, 0))
        missing("PR_SET_MEMORY_MERGE");
    uint8_t *memory = IS("shared")  ? map_file(size, 1)
                      : IS("file")  ? map_file(size, 0)
                      : IS("small") ? map_small(size)
                                    : map_aligned(size, 0);
    size_t skip = IS("small") || IS("guards") ? page : 0, every = IS("small") ? SMALL : GUARD_EVERY;
    if (!is_disabled && !may_be_huge)
        base_pages_only(1);
    if (!IS("file") && !IS("shared"))
        for (size_t at = 0; at < size; at += page)
            if (!skip || at % every)
                memset(memory + at, 1 + (int)(at / page % 3), page);
    if (!is_disabled && !may_be_huge)
        base_pages_only(0);
    if (IS("forbidden") && madvise(memory, size, MADV_NOHUGEPAGE))
        die("MADV_NOHUGEPAGE");
    if (IS("locked") && mlock(memory, size))
        die("mlock");
    if (IS("guards"))
        for (size_t at = 0; at < size; at += GUARD_EVERY)
            if (madvise(memory + at, page, 102 /* MADV_GUARD_INSTALL */))
                missing("MADV_GUARD_INSTALL");
    if (IS("pinned"))
        pin(memory, size);
    if (IS("snapshot")) {
        if (!fork())
            _exit(0);
        wait(NULL);
    }
    if (IS("forked") && !fork()) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
    }
    say("ready %p %zu %d", (void *)memory, size, (int)getpid());

    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    uint64_t random = 1, sum = 0;
    const int forks = IS("forking") || IS("flashing");
    const useconds_t lives = IS("forking") ? 100000 : 0;
    do {
        if (forks)
            fork_each(lives);
        for (int i = 0; i < 1 << 20; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            size_t at = (random >> 20) % size & ~(size_t)7;
            if (!skip || at % every >= page)
                sum += *(volatile uint64_t *)(memory + at);
            if (forks)
                *(volatile uint64_t *)(memory + at) = sum;
        }
    } while (poll(&input, 1, 0) == 0);
    size_t lost = IS("guards") ? lost_guards(memory, size) : 0;
    if (lost)
        say("lost %zu", lost);
    return lost != 0 || sum == 1;
}
