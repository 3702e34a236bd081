/* A program that stalls on memory in a function with two callers, with frame pointers.
 *
 * usage: callers [SECONDS=2]
 *
 *   ok SUM   main called outer, and outer called inner, for SECONDS; exit 0 */
#pragma GCC optimize("no-omit-frame-pointer,no-optimize-sibling-calls,no-ipa-icf")
#include "victim.h"

#define WORDS ((size_t)8 << 20)

static uint64_t *memory;
static uint64_t state = 1;

/* Each load depends on the one before it. GCC gives this function no frame, whatever the flags: it
 * calls none and needs no stack. */
__attribute__((noinline, noclone)) static uint64_t inner(size_t loads)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < loads; i++) {
        state = state * UINT64_C(6364136223846793005) + 1 + (sum & 1);
        sum += memory[(state >> 33) % WORDS];
    }
    return sum;
}

__attribute__((noinline, noclone)) static uint64_t outer(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < 16; i++)
        sum += inner(4096) + (uint64_t)i;
    return sum;
}

int main(int argc, char **argv)
{
    time_t end = time(NULL) + (time_t)number_arg(argc, argv, 1, 1, 2) + 1;
    uint64_t sum = 0;

    base_pages_only(1);
    memory = map_aligned(WORDS * sizeof *memory, 0);
    fill_all((uint8_t *)memory, WORDS * sizeof *memory, 1);
    while (time(NULL) < end)
        sum += outer();
    say("ok %" PRIu64, sum);
    return 0;
}
