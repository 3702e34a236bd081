/* Random walk: each load yields the address of the next. Arguments: bytes, steps. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    uint64_t bytes = strtoull(argv[1], NULL, 10), steps = strtoull(argv[2], NULL, 10);
    uint64_t words = bytes / sizeof(uint64_t), at = 1;
    uint64_t *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED || words == 0)
        return 1;
    for (uint64_t word = 0; word < words; word += 512)
        table[word] = 1;
    for (uint64_t step = 0; step < steps; step++)
        at = at * 6364136223846793005u + 1442695040888963407u + table[(at >> 20) % words];
    printf("%llu\n", (unsigned long long)at);
    return 0;
}
