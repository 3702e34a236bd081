/* Ten times: maps 16 MiB, lets a thread store to each page of it once, at offset 0x123, and unmaps
 * it. */

#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>

#define PAGE 4096
#define BYTES (4096 * PAGE)
#define ROUNDS 10

static volatile char *memory;
static pthread_barrier_t begin, end;

static void *work(void *none)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&begin);
        for (size_t at = 0x123; at < BYTES; at += PAGE)
            memory[at] = 1;
        pthread_barrier_wait(&end);
    }
    return none;
}

int main(void)
{
    pthread_t thread;
    pthread_barrier_init(&begin, NULL, 2);
    pthread_barrier_init(&end, NULL, 2);
    if (pthread_create(&thread, NULL, work, NULL) != 0)
        return 1;
    for (int round = 0; round < ROUNDS; round++) {
        memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return 2;
        pthread_barrier_wait(&begin);
        pthread_barrier_wait(&end);
        if (munmap((void *)memory, BYTES) != 0)
            return 3;
    }
    pthread_join(thread, NULL);
    return 0;
}
