/* Random reads of regions of 2 MiB, each less often than the one before: region i is read in
 * proportion to 1 / (i + 1). Neighbours in heat are apart in memory. Arguments: regions, reads. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define WORDS (2u << 20 >> 3)

static uint64_t seed = 1;

static uint64_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 32;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    uint64_t regions = strtoull(argv[1], NULL, 10), reads = strtoull(argv[2], NULL, 10), sum = 0;
    uint64_t *memory = aligned_alloc(2u << 20, regions * WORDS * sizeof *memory);
    double *until = malloc(regions * sizeof *until), all = 0;
    if (!memory || !until || regions == 0)
        return 1;
    for (uint64_t word = 0; word < regions * WORDS; word++)
        memory[word] = word;
    for (uint64_t region = 0; region < regions; region++)
        until[region] = all += 1.0 / (double)(region + 1);
    for (uint64_t read = 0; read < reads; read++) {
        double point = (double)draw() / 4294967296.0 * all;
        uint64_t low = 0, high = regions - 1;
        while (low < high) {
            uint64_t middle = (low + high) / 2;
            if (until[middle] <= point)
                low = middle + 1;
            else
                high = middle;
        }
        sum += memory[low * 37 % regions * WORDS + draw() % WORDS];
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
