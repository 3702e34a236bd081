/* Loads whose addresses do not depend on each other. Arguments: kind, bytes, steps.
 * stream: each eight bytes in turn. random: a word drawn each time. gather: an index of four bytes
 * in turn, then the word that it names: the edges and the property array of a graph. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 32;
}

static uint64_t stream(const uint64_t *words, uint64_t count, uint64_t steps)
{
    uint64_t sum = 0;
    for (uint64_t at = 0; steps > 0; steps--) {
        sum += words[at++];
        if (at == count)
            at = 0;
    }
    return sum;
}

static uint64_t drawn(const uint64_t *words, uint64_t count, uint64_t steps)
{
    uint64_t sum = 0, state = 1;
    for (; steps > 0; steps--)
        sum += words[draw(&state) % count];
    return sum;
}

/* The first half has the indices, the second the words that they name. */
static uint64_t gather(uint64_t *words, uint64_t count, uint64_t steps)
{
    uint32_t *indices = (uint32_t *)words;
    uint64_t *named = words + count / 2, sum = 0, state = 1;
    for (uint64_t at = 0; at < count; at++)
        indices[at] = draw(&state) % (count / 2);
    for (uint64_t at = 0; steps > 0; steps--) {
        sum += named[indices[at++]];
        if (at == count)
            at = 0;
    }
    return sum;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    uint64_t bytes = strtoull(argv[2], NULL, 10), steps = strtoull(argv[3], NULL, 10), sum;
    uint64_t count = bytes / sizeof(uint64_t);
    uint64_t *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED || count < 2 || count / 2 > UINT32_MAX)
        return 1;
    for (uint64_t at = 0; at < count; at += 512)
        words[at] = at;
    if (strcmp(argv[1], "stream") == 0)
        sum = stream(words, count, steps);
    else if (strcmp(argv[1], "random") == 0)
        sum = drawn(words, count, steps);
    else if (strcmp(argv[1], "gather") == 0)
        sum = gather(words, count, steps);
    else
        return 2;
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
