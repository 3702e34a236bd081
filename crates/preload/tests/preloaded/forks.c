/* Forks while other threads hold locks of the C library and allocate: one reads lines of a file
 * into a growing buffer, one flushes all files, one allocates and frees large objects. Prints
 * "forked" after SECONDS. Ends by SIGALRM if a fork or a child takes longer than 10 s.
 *
 * forks SECONDS */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static FILE *lines;

static void *reads(void *nothing) {
    for (;;) {
        char *line = NULL;
        size_t room = 0;
        rewind(lines);
        while (getline(&line, &room, lines) > 0) {
        }
        free(line);
    }
    return nothing;
}

static void *flushes(void *nothing) {
    for (;;)
        fflush(NULL);
    return nothing;
}

static void *takes(void *nothing) {
    for (;;) {
        void *volatile live[64];
        for (size_t i = 0; i < 64; i++)
            live[i] = malloc(600000 + i * 4096);
        for (size_t i = 0; i < 64; i++)
            free(live[i]);
    }
    return nothing;
}

int main(int count, char **args) {
    time_t end = time(NULL) + (count > 1 ? atoi(args[1]) : 1);
    void *(*work[])(void *) = {reads, flushes, takes};
    lines = tmpfile();
    for (int i = 0; lines && i < 8 << 20; i++)
        putc(i % (2 << 20) ? 'x' : '\n', lines);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        if (!lines || pthread_create(&thread, NULL, work[i], NULL) != 0)
            return 2;
    }
    while (time(NULL) < end) {
        int status = 1;
        alarm(10);
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            void *volatile more = malloc(3 << 20);
            free(more);
            _exit(more ? 0 : 1);
        }
        if (waitpid(child, &status, 0) != child || status != 0)
            return 3;
    }
    puts("forked");
    fflush(stdout);
    _exit(0);
}
