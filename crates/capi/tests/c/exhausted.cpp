// Tests of the allocators without address space: std::bad_alloc, and existing objects stay usable.
// Without sanitizers, which need terabytes.
#include <sys/resource.h>
#include <unistd.h>

#include <hugepilot.hpp>
#include <list>

#include "check.h"

namespace {

constexpr std::size_t mib = 1 << 20;

std::size_t address_space() {
    std::FILE *file = std::fopen("/proc/self/statm", "r");
    std::size_t pages = 0;
    CHECK(file != nullptr && std::fscanf(file, "%zu", &pages) == 1);
    std::fclose(file);
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

template <class Container, class Grow>
std::size_t grown_until_bad_alloc(Container &container, Grow grow) {
    try {
        for (;;) grow(container);
    } catch (const hugepilot::error &error) {
        CHECK(error.code() == HUGEPILOT_NO_MEMORY && error.kernel_errno() == 12);
    }
    return container.size();
}

}  // namespace

int main() {
    std::vector<int, hugepilot::thp_allocator<int>> numbers(mib, 3);
    rlimit limit{address_space() + 200 * mib, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);

    const std::size_t most = grown_until_bad_alloc(numbers, [](auto &all) { all.push_back(3); });
    CHECK(most >= 4 * mib && most <= 50 * mib && numbers[most - 1] == 3);

    struct item {
        std::uint64_t numbers[64];
    };
    std::list<item, hugepilot::thp_allocator<item>> list;
    const auto append = [](auto &all) { all.push_back({{all.size()}}); };
    const std::size_t items = grown_until_bad_alloc(list, append);
    std::size_t i = 0;
    for (const item &item : list) CHECK(item.numbers[0] == i++);
    list.clear();
    CHECK(grown_until_bad_alloc(list, [](auto &all) { all.push_back({{1}}); }) >= items / 10 * 9);
    list.clear();
    CHECK(numbers[0] == 3 && numbers[most - 1] == 3);
    std::puts("all checks passed");
}
