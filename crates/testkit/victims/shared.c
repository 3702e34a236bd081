/* Shared memory where the kernel puts it.
 *
 * usage: shared
 *
 *   ready ADDR LEN PID   32 huge-page-sized regions, filled */
#include "victim.h"

int main(void)
{
    size_t length = 32 * huge_page_size();
    /* A page before it, so that it does not begin at an aligned address by chance. */
    if (mmap(NULL, base_page_size(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
        die("page");
    uint8_t *memory =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die("shared");
    fill_all(memory, length, 1);
    say("ready %p %zu %d", (void *)memory, length, (int)getpid());
    next_line();
    return 0;
}
