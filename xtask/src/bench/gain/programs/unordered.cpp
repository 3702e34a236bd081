// Random lookups in std::unordered_map, one in eight an update. Argument: entries.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>

int main(int, char **args) {
    using Clock = std::chrono::steady_clock;
    const std::uint64_t entries = std::strtoull(args[1], nullptr, 10);
    std::unordered_map<std::uint64_t, std::uint64_t> table;
    for (std::uint64_t key = 0; key < entries; key++)
        table[key * 0x9e3779b97f4a7c15] = key;
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::puts("ready");
    std::uint64_t random = 88172645463325252, sum = 0;
    for (;;) {
        const auto begun = Clock::now();
        std::uint64_t ops = 0;
        while (Clock::now() - begun < std::chrono::milliseconds(20)) {
            for (int i = 0; i < 1024; i++) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                auto &value = table[random % entries * 0x9e3779b97f4a7c15];
                if (i % 8 == 0)
                    value = random;
                sum += value;
            }
            ops += 1024;
        }
        if (std::printf("ops %llu\n", static_cast<unsigned long long>(ops)) < 0 || sum == 1)
            return 1;
    }
}
