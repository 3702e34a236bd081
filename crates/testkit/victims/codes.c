/* A program with 3,000 functions, which it calls at random.
 *
 * usage: codes wide|dense
 *
 *   wide    each function is on two pages of its own: 23 MiB of code, more than the TLB holds
 *   dense   the functions lie side by side: 100 KiB
 *
 *   ready   the functions run until the end of stdin; exit 0 */
#include "victim.h"

#include <poll.h>

typedef uint64_t function(uint64_t);

#define WIDE(n) \
    __attribute__((noinline, aligned(8192))) static uint64_t w##n(uint64_t x) { return x * 3 + n; }
#define DENSE(n) __attribute__((noinline)) static uint64_t d##n(uint64_t x) { return x * 3 + n; }
#define WIDE_ENTRY(n) w##n,
#define DENSE_ENTRY(n) d##n,

#define TEN(F, n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7) F(n##8) F(n##9)
#define HUNDRED(F, n) \
    TEN(F, n##0) TEN(F, n##1) TEN(F, n##2) TEN(F, n##3) TEN(F, n##4) \
    TEN(F, n##5) TEN(F, n##6) TEN(F, n##7) TEN(F, n##8) TEN(F, n##9)
#define THOUSAND(F, n) \
    HUNDRED(F, n##0) HUNDRED(F, n##1) HUNDRED(F, n##2) HUNDRED(F, n##3) HUNDRED(F, n##4) \
    HUNDRED(F, n##5) HUNDRED(F, n##6) HUNDRED(F, n##7) HUNDRED(F, n##8) HUNDRED(F, n##9)
#define ALL(F) THOUSAND(F, 1) THOUSAND(F, 2) THOUSAND(F, 3)

ALL(WIDE)
ALL(DENSE)
static function *const wide[] = {ALL(WIDE_ENTRY)};
static function *const dense[] = {ALL(DENSE_ENTRY)};

int main(int argc, char **argv)
{
    function *const *functions = argc > 1 && !strcmp(argv[1], "wide") ? wide : dense;
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    uint64_t random = 1, sum = 0;
    say("ready");
    do {
        for (int i = 0; i < 1 << 20; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            sum = functions[(random >> 33) % (sizeof wide / sizeof *wide)](sum);
        }
    } while (poll(&input, 1, 0) == 0);
    return sum == 1;
}
