/* A process with very many mappings, as a JIT or a runtime with guard pages has.
 *
 * usage: manymaps [MAPPINGS=10000]
 *
 *   ready ADDR LEN COUNT   COUNT mappings of one page each start at ADDR; fewer than asked where the kernel's
 *                          vm.max_map_count ends it
 *
 * Then it waits for the end of stdin. */
#include "victim.h"

int main(int argc, char **argv)
{
    size_t asked = number_arg(argc, argv, 1, 2, 10000);
    size_t page = base_page_size(), len = asked * page;

    uint8_t *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die("mmap");
    /* Neighbours differ in protection, so the kernel cannot merge them. Made from the left: what lies right of
     * the last change is one mapping still. */
    size_t made = 1;
    for (size_t i = 1; i < asked; i++) {
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
