/* Memory for every rule by which the kernel uses huge pages: each part twice, once on base pages
 * when it gets ready, once untouched until a line arrives.
 *
 * usage: thp [disabled | advised_only]
 *
 *   part NAME OLD FRESH   addresses of two mappings of 2 huge-page-sized regions each:
 *     plain        private memory
 *     advised      private memory with MADV_HUGEPAGE
 *     refused      private memory with MADV_NOHUGEPAGE
 *     locked       private memory, locked
 *     shared       shared memory
 *     shared_advised   shared memory with MADV_HUGEPAGE
 *     small        private memory of half a region
 *   ready ADDR LEN PID    ADDR and LEN of OLD of `plain`
 *   touched               after a line on stdin: every FRESH was written, every OLD read, and a
 *                         new mapping was made: khugepaged visits a process from then on
 *
 * `disabled` forbids huge pages to the whole process (PR_SET_THP_DISABLE), `advised_only` those
 * without advice. The mappings are apart, so that the kernel does not merge them. */
#include "victim.h"

#ifndef PR_THP_DISABLE_EXCEPT_ADVISED
#define PR_THP_DISABLE_EXCEPT_ADVISED 2
#endif

enum { PARTS = 7 };
static const char *const NAMES[PARTS] = {"plain",  "advised",        "refused", "locked",
                                         "shared", "shared_advised", "small"};
static uint8_t *old[PARTS], *fresh[PARTS];

static size_t length(int part)
{
    return part == 6 ? huge_page_size() / 2 : 2 * huge_page_size();
}

/* Maps a part at an aligned address, with gaps before and behind it: a later part may lie in the
 * gap of an earlier one. */
static uint8_t *map_part(int part)
{
    int is_shared = part == 4 || part == 5;
    size_t gap = huge_page_size();
    uint8_t *memory = map_aligned(gap + length(part) + gap, 0);
    if (munmap(memory, gap + length(part) + gap))
        die("gap");
    memory += gap;
    int flags = MAP_FIXED | MAP_ANONYMOUS | (is_shared ? MAP_SHARED : MAP_PRIVATE);
    if (mmap(memory, length(part), PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
        die("part");
    if ((part == 1 || part == 5) && madvise(memory, length(part), MADV_HUGEPAGE))
        die("MADV_HUGEPAGE");
    if (part == 2 && madvise(memory, length(part), MADV_NOHUGEPAGE))
        die("MADV_NOHUGEPAGE");
    return memory;
}

static void lock(uint8_t *memory)
{
    if (mlock2(memory, length(3), MLOCK_ONFAULT))
        die("mlock2");
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    base_pages_only(1);
    for (int part = 0; part < PARTS; part++) {
        old[part] = map_part(part);
        fresh[part] = map_part(part);
        fill_all(old[part], length(part), 1);
        say("part %s %p %p", NAMES[part], (void *)old[part], (void *)fresh[part]);
    }
    lock(old[3]);
    lock(fresh[3]);
    base_pages_only(0);
    if (!strcmp(mode, "disabled"))
        base_pages_only(1);
    else if (!strcmp(mode, "advised_only") &&
             prctl(PR_SET_THP_DISABLE, 1, PR_THP_DISABLE_EXCEPT_ADVISED, 0, 0)) {
        say("unsupported");
        return 0;
    }
    say("ready %p %zu %d", (void *)old[0], length(0), (int)getpid());
    while (next_line()) {
        for (int part = 0; part < PARTS; part++) {
            fill_all(fresh[part], length(part), 1);
            for (size_t at = 0; at < length(part); at += base_page_size())
                (void)*(volatile uint8_t *)(old[part] + at);
        }
        munmap(map_part(5), length(5));
        say("touched");
    }
    return 0;
}
