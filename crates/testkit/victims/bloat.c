/* A program that uses only some base pages of its huge pages.
 *
 * usage: bloat USED[,USED...] [TAIL=0] [NAME] [HOT=0]
 *
 *   USED   base pages used of each huge page: 16, or 16x40 for 40 such huge pages
 *   TAIL   untouched huge-page-sized regions at the end of the mapping
 *   NAME   name of the process (comm)
 *   HOT    huge pages from the start whose used pages it reads at random until a line on stdin
 *
 *   ready ADDR LEN PID   LEN excludes the tail; khugepaged does not collapse the memory
 *
 * Commands on stdin, with their output:
 *
 *   check    intact | damaged ADDR   checks every byte
 *   lock N   locked                  mlock of the last N huge pages
 *   fork     forked PID              starts a child that sleeps
 *   reap     reaped                  ends the child
 *   exec     execed ADDR LEN PID     executes the program again, with equal memory */
#include "victim.h"

#include <poll.h>
#include <signal.h>

static uint8_t *memory;
static size_t *used, regions, per_huge, page_size, huge_size, tail;

static int is_used(size_t page)
{
    /* An odd factor permutes the pages of a huge page, whose number is a power of two. */
    return (page * 37 + page / per_huge * 11) % per_huge < used[page / per_huge];
}

/* Offset of the only non-zero byte in a used even page. All words of a used odd page are set. */
static size_t lone_byte(size_t page)
{
    return pattern_at((void *)(page << 12), 1) % page_size;
}

static uint64_t word_of(size_t page, size_t word)
{
    const uint64_t *address = (uint64_t *)(memory + page * page_size) + word;
    if (!is_used(page))
        return 0;
    if (page % 2)
        return pattern_at(address, 1);
    size_t byte = lone_byte(page);
    return byte / sizeof(uint64_t) == word ? UINT64_C(0x80) << byte % sizeof(uint64_t) * 8 : 0;
}

static void make(void)
{
    base_pages_only(0);
    memory = map_aligned((regions + tail) * huge_size, 1);
    for (size_t page = 0; page < regions * per_huge; page++) {
        uint64_t *words = (uint64_t *)(memory + page * page_size);
        *(volatile uint64_t *)words = 0; /* a write maps a page other than the shared zero page */
        for (size_t i = 0; is_used(page) && i < page_size / sizeof *words; i++)
            words[i] = word_of(page, i);
    }
    base_pages_only(1);
}

static void check(void)
{
    for (size_t page = 0; page < regions * per_huge; page++) {
        const uint64_t *words = (uint64_t *)(memory + page * page_size);
        for (size_t i = 0; i < page_size / sizeof *words; i++)
            if (words[i] != word_of(page, i)) {
                say("damaged %p", (const void *)(words + i));
                return;
            }
    }
    say("intact");
}

static void read_list(char *list)
{
    used = calloc(strlen(list) * 1000, sizeof *used);
    if (!used)
        die("calloc");
    for (char *item = strtok(list, ","); item; item = strtok(NULL, ",")) {
        char *end;
        size_t value = strtoul(item, &end, 10);
        size_t times = *end == 'x' ? strtoul(end + 1, NULL, 10) : 1;
        while (times-- && regions < 1000)
            used[regions++] = value;
    }
}

static pid_t sleeping_child(void)
{
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        for (;;)
            pause();
    }
    say("forked %d", (int)child);
    return child;
}

static void execute(const char *line, char **argv)
{
    static pid_t child;
    if (!strcmp(line, "check")) {
        check();
    } else if (!strncmp(line, "lock ", 5)) {
        size_t len = strtoul(line + 5, NULL, 10) * huge_size;
        if (mlock(memory + regions * huge_size - len, len))
            die("mlock");
        say("locked");
    } else if (!strcmp(line, "fork")) {
        child = sleeping_child();
    } else if (!strcmp(line, "reap")) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        say("reaped");
    } else if (!strcmp(line, "exec")) {
        setenv("BLOAT_EXECED", "1", 1);
        execv("/proc/self/exe", argv);
        die("exec");
    } else {
        errno = EINVAL;
        die(line);
    }
}

/* Reads used pages of the first `hot` huge pages at random until stdin has input. */
static void read_until_input(size_t hot)
{
    size_t *all = calloc(hot * per_huge, sizeof *all), count = 0;
    if (!all)
        die("calloc");
    for (size_t page = 0; page < hot * per_huge; page++)
        if (is_used(page))
            all[count++] = page;
    const volatile uint8_t *bytes = memory;
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    uint64_t x = 1;
    while (poll(&fd, 1, 0) <= 0)
        for (int reads = 0; reads < 100000; reads++) {
            x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
            (void)bytes[all[(x >> 33) % count] * page_size + (x >> 20) % page_size];
        }
    free(all);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        errno = EINVAL;
        die("USED");
    }
    page_size = base_page_size();
    huge_size = huge_page_size();
    per_huge = huge_size / page_size;
    tail = number_arg(argc, argv, 2, 0, 0);
    char *list = strdup(argv[1]); /* strtok cuts it, and `exec` passes on the original */
    if (!list)
        die("strdup");
    read_list(list);
    if (argc > 3 && prctl(PR_SET_NAME, argv[3], 0, 0, 0))
        die("PR_SET_NAME");
    make();
    const char *first = getenv("BLOAT_EXECED") ? "execed" : "ready";
    say("%s %p %zu %d", first, (void *)memory, regions * huge_size, (int)getpid());

    size_t hot = number_arg(argc, argv, 4, 0, 0);
    if (hot > 0)
        read_until_input(hot < regions ? hot : regions);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        execute(line, argv);
    }
    return 0;
}
