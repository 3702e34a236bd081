/* A program with pages from a hugetlb pool.
 *
 * usage: hugetlb [MIB=8] [TOUCHED_MIB=4] [MS]
 *
 *   ready ADDR LEN PID   LEN bytes are mapped in pages of the default size; TOUCHED_MIB are touched
 *   lacking              the pool has too few free pages; exit 3
 *   ok                   at the end of stdin, or MS milliseconds later; exit 0 */
#include "victim.h"

int main(int argc, char **argv)
{
    size_t len = number_arg(argc, argv, 1, 1, 8) * MIB;
    size_t touched = number_arg(argc, argv, 2, 0, 4) * MIB;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
    uint8_t *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) {
        if (errno != ENOMEM)
            die("mmap");
        say("lacking");
        return 3;
    }
    for (size_t at = 0; at < touched && at < len; at += MIB)
        memory[at] = 1;
    say("ready %p %zu %d", (void *)memory, len, (int)getpid());
    if (argc > 3)
        sleep_ms(number_arg(argc, argv, 3, 0, 0));
    else
        wait_for_end();
    say("ok");
    return 0;
}
