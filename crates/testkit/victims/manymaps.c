/* A process with very many mappings, like a JIT compiler or a runtime with guard pages.
 *
 * usage: manymaps [MAPPINGS=10000]
 *
 *   ready ADDR LEN COUNT   COUNT mappings of one page each start at ADDR; fewer than MAPPINGS if
 *                          vm.max_map_count is lower
 *
 * It then waits for the end of stdin. */
#include "victim.h"

int main(int argc, char **argv)
{
    size_t wanted = number_arg(argc, argv, 1, 2, 10000);
    size_t page = base_page_size(), len = wanted * page;

    uint8_t *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die("mmap");
    /* Neighbours differ in protection, so the kernel cannot merge them. From the left: the pages to
     * the right of the last change are still one mapping. */
    size_t made = 1;
    for (size_t i = 1; i < wanted; i++) {
        int protection = i % 2 ? PROT_READ : PROT_NONE;
        if (mprotect(memory + i * page, page, protection)) {
            if (errno != ENOMEM)
                die("mprotect");
            break;
        }
        made++;
    }
    say("ready %p %zu %zu", (void *)memory, len, made);
    wait_for_end();
    return 0;
}
