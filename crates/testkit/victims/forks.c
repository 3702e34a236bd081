/* A program with children that live for milliseconds, one after the other.
 *
 * usage: forks [CHILDREN=100] [MIB=8]
 *
 * Each child touches its memory and ends; each of its base pages is one page fault. */
#include <sys/wait.h>
#include "victim.h"

int main(int argc, char **argv)
{
    long children = number_arg(argc, argv, 1, 1, 100);
    size_t len = number_arg(argc, argv, 2, 1, 8) << 20;
    size_t page = base_page_size();

    base_pages_only(1);
    for (long i = 0; i < children; i++) {
        pid_t child = fork();
        if (child == 0) {
            volatile uint8_t *memory = map_aligned(len, 0);
            for (size_t at = 0; at < len; at += page)
                memory[at] = 1;
            _exit(0);
        }
        if (child < 0 || waitpid(child, NULL, 0) != child)
            return 1;
    }
    return 0;
}
