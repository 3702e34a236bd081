/* Accesses an array at a fixed address in a known way.
 *
 * traced KIND: the array has 1 MiB at 0x1000000000.
 *   walk     each 8-byte word is loaded, then each second one stored
 *   threads  the same by two threads, a half each
 *   stosb    rep stosb over the array
 *   movsb    rep movsb of the first half to the second
 *   avx      32-byte loads; then one that crosses a line
 *   atomic   each word is incremented by a locked instruction
 *   fork     a child walks, then the parent
 *   segv     walks, then dies by SIGSEGV
 *   exec     walks, then becomes /bin/true
 *   spin     walks for ever
 *   many     64 threads one after the other load a word each */

#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS (1 << 17)
#define BYTES (WORDS * 8)

static volatile uint64_t *array;

static void walk(int from, int to)
{
    for (int i = from; i < to; i++)
        (void)array[i];
    for (int i = from; i < to; i += 2)
        array[i] = i;
}

static void *half(void *number)
{
    int from = number ? WORDS / 2 : 0;
    walk(from, from + WORDS / 2);
    return NULL;
}

static void *one(void *number)
{
    (void)array[(uintptr_t)number];
    return NULL;
}

static void run(void *(*work)(void *), uintptr_t first, uintptr_t second)
{
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, work, (void *)first);
    if (second)
        pthread_create(&threads[1], NULL, work, (void *)second);
    pthread_join(threads[0], NULL);
    if (second)
        pthread_join(threads[1], NULL);
}

__attribute__((target("avx2"))) static void avx(void)
{
    const char *bytes = (const char *)array;
    for (int i = 0; i < BYTES; i += 32)
        asm volatile("vmovdqu (%0), %%ymm0" : : "r"(bytes + i) : "xmm0", "memory");
    asm volatile("vmovdqu (%0), %%ymm0" : : "r"(bytes + 48) : "xmm0", "memory");
}

int main(int count, char **arguments)
{
    const char *kind = count > 1 ? arguments[1] : "";
    void *target = (void *)0x1000000000;
    target = mmap(target, BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (target != (void *)0x1000000000)
        return 3;
    array = target;
    char *volatile heap = malloc(100);
    *heap = 1;
    if (!strcmp(kind, "walk")) {
        walk(0, WORDS);
        return 5;
    }
    if (!strcmp(kind, "threads"))
        run(half, 0, 1);
    if (!strcmp(kind, "stosb")) {
        size_t bytes = BYTES;
        asm volatile("rep stosb" : "+D"(target), "+c"(bytes) : "a"(1) : "memory");
    }
    if (!strcmp(kind, "movsb")) {
        void *second = (char *)target + BYTES / 2;
        size_t bytes = BYTES / 2;
        asm volatile("rep movsb" : "+D"(second), "+S"(target), "+c"(bytes) : : "memory");
    }
    if (!strcmp(kind, "avx"))
        avx();
    if (!strcmp(kind, "atomic"))
        for (int i = 0; i < WORDS; i++)
            asm volatile("lock incq %0" : "+m"(array[i]));
    if (!strcmp(kind, "fork")) {
        pid_t child = fork();
        walk(0, WORDS);
        if (child == 0)
            return 0;
        waitpid(child, NULL, 0);
    }
    if (!strcmp(kind, "segv")) {
        walk(0, WORDS);
        *(volatile int *)8 = 0;
    }
    if (!strcmp(kind, "exec")) {
        walk(0, WORDS);
        execl("/bin/true", "true", NULL);
    }
    while (!strcmp(kind, "spin"))
        walk(0, WORDS);
    if (!strcmp(kind, "many"))
        for (uintptr_t i = 0; i < 64; i++)
            run(one, i, 0);
    return 0;
}
