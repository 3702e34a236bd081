/* Marks the phases of a recording, and waits after each, so that the recording has slices of it. */
#define _POSIX_C_SOURCE 199309L /* nanosleep */

#include <hugepilot.h>
#include <stdio.h>
#include <time.h>

static void phase(const char *name) {
    const struct timespec fifth = {0, 200000000};
    hugepilot_begin_phase(name);
    nanosleep(&fifth, NULL);
}

int main(void) {
    hugepilot_begin_phase(NULL);
    phase("load\nit");
    phase("solve \xff");
    puts("all checks passed");
    return 0;
}
