/* A program whose hot memory moves.
 *
 * usage: moving MIB PARTS
 *
 *   ready ADDR LEN PID   LEN bytes on base pages; random words of the first of PARTS equal parts
 *                        are read until
 *   (stdin) a line       the next part is read instead
 *   (stdin) the end      exit 0 */
#include "victim.h"
#include <poll.h>

#define READS 100000

int main(int argc, char **argv)
{
    size_t len = number_arg(argc, argv, 1, 2, 64) * MIB, parts = number_arg(argc, argv, 2, 1, 1);
    size_t words = len / parts / sizeof(uint64_t), part = 0;
    uint64_t state = 1, sum = 0;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

    base_pages_only(1);
    volatile uint64_t *memory = map_aligned(len, 0);
    fill_all((uint64_t *)memory, len, 1);
    base_pages_only(0);
    say("ready %p %zu %d", (void *)memory, len, (int)getpid());
    for (;;) {
        if (poll(&input, 1, 0) > 0) {
            if (!next_line())
                return 0;
            part = (part + 1) % parts;
        }
        volatile uint64_t *hot = memory + part * words;
        for (size_t i = 0; i < READS; i++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407 + (sum & 1);
            sum += hot[(state >> 33) % words];
        }
    }
}
