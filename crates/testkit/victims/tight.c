/* A program with sparse memory that will need a little more later: in a tight cgroup, huge pages made of its
 * holes leave no room for that, and it is killed.
 *
 * usage: tight [REGIONS=16] [EVERY=32] [GROW_MIB=3]
 *
 *   ready ADDR LEN PID   one base page of EVERY is touched in each of REGIONS huge-page-sized regions
 *   grown MIB            after each MiB, once a line came on stdin
 *   done                 all of GROW_MIB is there; exit 0
 *
 * Exits 0 too when stdin ends before a line came. */
#include "victim.h"

int main(int argc, char **argv)
{
    size_t len = number_arg(argc, argv, 1, 1, 16) * huge_page_size();
    size_t every = number_arg(argc, argv, 2, 1, 32);
    size_t grow = number_arg(argc, argv, 3, 0, 3);
    size_t page = base_page_size();

    base_pages_only(1);
    uint8_t *memory = map_aligned(len, 0);
    for (size_t at = 0; at < len; at += every * page)
        memory[at] = 1;
    base_pages_only(0);
    say("ready %p %zu %d", (void *)memory, len, (int)getpid());

    if (!next_line())
        return 0;
    for (size_t mib = 1; mib <= grow; mib++) {
        uint8_t *more = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (more == MAP_FAILED)
            die("mmap");
        memset(more, 1, MIB);
        say("grown %zu", mib);
    }
    say("done");
    return 0;
}
