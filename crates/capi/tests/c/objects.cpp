// Tests of regions, arenas and errors in C++.
#include <cstring>
#include <hugepilot.hpp>
#include <map>
#include <type_traits>

#include "check.h"

namespace {

constexpr std::size_t mib = 1 << 20;

static_assert(!std::is_copy_constructible_v<hugepilot::region>);
static_assert(std::is_nothrow_move_constructible_v<hugepilot::region>);
static_assert(!std::is_move_constructible_v<hugepilot::arena>, "containers point to it");
static_assert(std::is_nothrow_copy_constructible_v<hugepilot::error>);

template <class Work>
hugepilot::error failure(Work work) {
    try {
        work();
    } catch (const hugepilot::error &error) {
        return error;
    }
    CHECK(!"it throws");
    std::abort();
}

void errors_are_bad_alloc() {
    try {
        hugepilot::region region(SIZE_MAX);
        CHECK(!"it throws");
    } catch (const std::bad_alloc &error) {
        CHECK(std::strstr(error.what(), "exceeds the address space"));
    }
    auto error = failure([] { hugepilot::region region(1, hugepilot::options("huge")); });
    CHECK(error.code() == HUGEPILOT_CHAIN && error.kernel_errno() == 0);
    error = failure([] { hugepilot::region region(std::size_t(1) << 60); });
    CHECK(error.code() == HUGEPILOT_NO_MEMORY && error.kernel_errno() == 12);
}

void a_region_moves_with_its_memory() {
    hugepilot::options options("hugetlb-2m,base");
    options.name = "a region";
    hugepilot::region first(beyond_the_pool(), options);
    first.data()[7] = std::byte{7};
    CHECK(first.requested() == "hugetlb-2m,base" && first.backing() == "base");
    auto refused = first.refused();
    CHECK(refused.size() == 1 && !refused[0].text.empty());
    CHECK(refused[0].code == HUGEPILOT_POOL_EMPTY);
    CHECK(first.named() == (std::strstr(smaps_at(first.data()).name, "a region") != nullptr));

    hugepilot::region second(2 * mib);
    const void *gone = second.data();
    const void *kept = first.data();
    second = std::move(first);
    CHECK(second.data() == kept && second.data()[7] == std::byte{7});
    CHECK(second.size() >= beyond_the_pool());
    CHECK(first.data() == nullptr && first.size() == 0);
    CHECK(failure([&] { first.prefault(); }).code() == HUGEPILOT_ARGUMENT);
    CHECK(!smaps_at(gone).found);
}

void a_region_grows_and_reports_its_usage() {
    hugepilot::region region(2 * mib, hugepilot::options("thp,base"));
    region.prefault();
    std::memset(region.data(), 3, region.size());
    region.grow(6 * mib, 2 * mib);
    CHECK(region.size() == 6 * mib && region.data()[2 * mib - 1] == std::byte{3});
    auto usage = region.usage();
    CHECK(usage.base_bytes + usage.thp_bytes >= 2 * mib);
    CHECK(region.collapse().after_bytes >= usage.thp_bytes);
}

void an_arena_serves_pmr_containers() {
    hugepilot::arena arena(mib, 64 * mib, hugepilot::options("thp,base"));
    const void *last = nullptr;
    {
        std::pmr::map<int, std::pmr::string> words(&arena);
        const char *const text = "a text that is too long to be kept in place";
        for (int i = 0; i < 10000; i++) words.emplace(i, text);
        CHECK(words.size() == 10000 && words.at(9999).get_allocator().resource() == &arena);
        last = words.at(9999).data();
        CHECK(words.at(1234) == text);
    }
    CHECK(arena.mapped() >= mib && arena.mapped() <= 4 * mib);
    auto usage = arena.usage();
    CHECK(usage.base_bytes + usage.thp_bytes + usage.untouched_bytes == arena.mapped());
    CHECK(smaps_at(last).found && arena == arena);
    CHECK(failure([&] { (void)arena.allocate(65 * mib); }).code() == HUGEPILOT_LIMIT);
    arena.reset();
    CHECK(reinterpret_cast<std::uintptr_t>(arena.allocate(100, 65536)) % 65536 == 0);
}

}  // namespace

int main() {
    errors_are_bad_alloc();
    a_region_moves_with_its_memory();
    a_region_grows_and_reports_its_usage();
    an_arena_serves_pmr_containers();
    std::puts("all checks passed");
}
