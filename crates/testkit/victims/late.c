/* A program that touches all its memory right before its end.
 *
 * usage: late [MIB=128]
 *
 * Each base page is one page fault. Exits 0 at once. */
#include "victim.h"

int main(int argc, char **argv)
{
    size_t len = number_arg(argc, argv, 1, 1, 128) << 20;
    size_t page = base_page_size();

    base_pages_only(1);
    volatile uint8_t *memory = map_aligned(len, 0);
    for (size_t at = 0; at < len; at += page)
        memory[at] = 1;
    _exit(0);
}
