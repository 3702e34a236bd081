/* Measures what huge pages gain for random reads on this CPU.
 *
 * usage: gain [MIB=128] [ROUNDS=15]
 *
 *   gain RATIO           then exit 0
 *
 * Two blocks have the same size, one on base pages and one on huge pages. Each round reads both in
 * turn, for the same number of reads. RATIO is the median over the rounds of the CPU time on base
 * pages over that on huge pages. */
#include "pages.h"

enum { READS = 500000 };

static uint64_t sum;

/* CPU time of independent reads at random places of `block`. */
static double seconds(const uint64_t *block, size_t words, uint64_t *state)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    for (int i = 0; i < READS; i++) {
        *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
        sum += block[(*state >> 24) % words];
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    size_t len = number_arg(argc, argv, 1, 1, 128) * MIB;
    size_t rounds = number_arg(argc, argv, 2, 1, 15);
    double *ratios = calloc(rounds, sizeof *ratios);
    uint64_t *blocks[2], state = 1;
    base_pages_only(1);
    for (int huge = 0; huge < 2; huge++) {
        blocks[huge] = map_aligned(len, 0);
        fill_all(blocks[huge], len, 1);
    }
    base_pages_only(0);
    if (madvise(blocks[1], len, MADV_COLLAPSE))
        die("MADV_COLLAPSE");
    for (size_t round = 0; round < rounds; round++) {
        double base = seconds(blocks[0], len / sizeof(uint64_t), &state);
        double huge = seconds(blocks[1], len / sizeof(uint64_t), &state);
        ratios[round] = base / huge;
    }
    qsort(ratios, rounds, sizeof *ratios, compare);
    say("gain %.3f%s", ratios[rounds / 2], sum == 1 ? " " : "");
    return 0;
}
