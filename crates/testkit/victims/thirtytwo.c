/* A 32-bit program that stalls on memory. It needs no 32-bit C library, only a compiler for 32-bit
 * code and a kernel that runs it. Compile with -m32 -static -nostdlib -ffreestanding.
 *
 * usage: thirtytwo
 *
 *   ready ADDR LEN   LEN bytes at ADDR are filled; then it reads them at random until stdin ends */

enum { EXIT = 1, WRITE = 4, POLL = 168, MMAP2 = 192 };
enum { LEN = 64 << 20, HUGE = 2 << 20, PAGE = 4096 };

static long call(long number, long a, long b, long c, long d, long e)
{
    long result;
    /* ebp holds the sixth argument, 0 in all calls. It is saved by hand, as it can be the frame. */
    __asm__ volatile("push %%ebp; xor %%ebp, %%ebp; int $0x80; pop %%ebp"
                     : "=a"(result)
                     : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
                     : "memory");
    return result;
}

static char *put(char *at, const char *text)
{
    while (*text)
        *at++ = *text++;
    return at;
}

static void say_ready(unsigned long address)
{
    char line[64], *at = put(line, "ready 0x");
    for (int shift = 28; shift >= 0; shift -= 4)
        *at++ = "0123456789abcdef"[address >> shift & 15];
    at = put(at, " 67108864\n");
    call(WRITE, 1, (long)line, at - line, 0, 0);
}

void _start(void)
{
    enum { READ_WRITE = 3, PRIVATE_ANONYMOUS = 0x22 };
    long mapped = call(MMAP2, 0, LEN + HUGE, READ_WRITE, PRIVATE_ANONYMOUS, -1);
    unsigned long raw = (unsigned long)mapped;
    if (raw > -4096ul)
        call(EXIT, 2, 0, 0, 0, 0);
    volatile unsigned char *memory = (unsigned char *)((raw + HUGE - 1) & -(unsigned long)HUGE);
    for (unsigned long at = 0; at < LEN; at += PAGE)
        memory[at] = 1;
    say_ready((unsigned long)memory);

    struct {
        int fd;
        short events, revents;
    } in = {0, 1, 0};
    unsigned x = 1;
    while (call(POLL, (long)&in, 1, 0, 0, 0) <= 0)
        for (int reads = 0; reads < 100000; reads++) {
            x = x * 1664525 + 1013904223;
            (void)memory[x % LEN];
        }
    call(EXIT, 0, 0, 0, 0, 0);
}
