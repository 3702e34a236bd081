// Tests of the allocators in containers.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <hugepilot.hpp>
#include <list>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>

#include "check.h"

namespace {

constexpr std::size_t mib = 1 << 20;

template <class T>
using thp = hugepilot::thp_allocator<T>;
template <class T>
using huge = hugepilot::huge_page_allocator<T>;

using traits = std::allocator_traits<thp<int>>;
static_assert(std::is_same_v<traits::rebind_alloc<long>, thp<long>>);
static_assert(std::is_empty_v<thp<int>> && traits::is_always_equal::value);
static_assert(std::is_nothrow_copy_constructible_v<thp<int>>);
static_assert(std::is_nothrow_move_assignable_v<thp<int>>);
static_assert(std::is_nothrow_constructible_v<thp<long>, const thp<int> &>);
static_assert(!std::is_constructible_v<huge<int>, const thp<int> &>, "they have different heaps");
static_assert(std::is_nothrow_move_assignable_v<std::vector<int, thp<int>>>);

hugepilot_stats stats() {
    hugepilot_stats stats;
    CHECK(hugepilot_heap_stats(hugepilot_heap_thp(), &stats) == HUGEPILOT_OK);
    return stats;
}

void allocators_copy_convert_and_compare() {
    thp<int> ints;
    thp<long> longs(ints);
    CHECK(ints == longs && !(ints != longs) && thp<int>(longs) == ints);
    int *from_one = ints.allocate(3);
    thp<int>(longs).deallocate(from_one, 3);
}

void containers_work() {
    std::vector<std::uint64_t, thp<std::uint64_t>> numbers;
    for (std::uint64_t i = 0; i < mib; i++) numbers.push_back(i);
    CHECK(std::accumulate(numbers.begin(), numbers.end(), std::uint64_t(0)) == (mib - 1) * mib / 2);
    auto copy = numbers;
    auto moved = std::move(numbers);
    CHECK(copy == moved && copy.data() != moved.data());

    using text = std::basic_string<char, std::char_traits<char>, thp<char>>;
    using pair = std::pair<const int, text>;
    std::unordered_map<int, text, std::hash<int>, std::equal_to<int>, thp<pair>> map;
    for (int i = 0; i < 50000; i++) map.emplace(i, text(std::size_t(i % 100), 'x'));
    for (int i = 0; i < 50000; i += 2) map.erase(i);
    CHECK(map.size() == 25000 && map.at(12399).size() == 99 && map.find(2) == map.end());

    std::list<int, thp<int>> list(1000, 7);
    list.splice(list.begin(), std::list<int, thp<int>>(1000, 8));
    CHECK(std::count(list.begin(), list.end(), 8) == 1000);
}

// 100,000 nodes of 2 MiB each would be 195 GiB.
void small_objects_share_pages() {
    const auto before = stats();
    std::set<int, std::less<int>, thp<int>> nodes;
    for (int i = 0; i < 100000; i++) nodes.insert(i);
    const auto during = stats();
    const auto used = during.allocated_bytes - before.allocated_bytes;
    CHECK(used >= 100000 * 40 && used <= 100000 * 56);
    CHECK(during.mapped_bytes - before.mapped_bytes <= 64 * mib);
    nodes.clear();
    CHECK(stats().allocated_bytes <= before.allocated_bytes + 64);
}

template <std::size_t Align>
struct alignas(Align) block {
    unsigned char first;
};

template <std::size_t Align>
void is_aligned() {
    std::vector<block<Align>, thp<block<Align>>> blocks;
    for (int i = 0; i < 5; i++) {
        blocks.emplace_back().first = static_cast<unsigned char>(i);
        CHECK(reinterpret_cast<std::uintptr_t>(blocks.data()) % Align == 0);
    }
    CHECK(blocks[4].first == 4);
}

void over_aligned_types_are_aligned() {
    is_aligned<1>();
    is_aligned<64>();
    is_aligned<4096>();
    is_aligned<8192>();
    is_aligned<65536>();
    is_aligned<4 * mib>();
}

template <class Work>
hugepilot_error code_of(Work work) {
    try {
        work();
    } catch (const hugepilot::error &error) {
        return error.code();
    }
    return HUGEPILOT_OK;
}

// The number is volatile, so that no compiler detects that it is too large.
void too_much_is_bad_alloc() {
    volatile std::size_t most = SIZE_MAX;
    try {
        (void)thp<std::uint64_t>().allocate(most / 8 + 1);
        CHECK(!"it throws");
    } catch (const std::bad_array_new_length &) {
    }
    CHECK(code_of([&] { (void)thp<std::uint64_t>().allocate(most / 8); }) == HUGEPILOT_OVERFLOW);
    CHECK(code_of([&] { (void)thp<char>().allocate(most / 2); }) != HUGEPILOT_OK);
    CHECK(code_of([&] { (void)thp<char>().allocate(most >> 14); }) == HUGEPILOT_NO_MEMORY);
    CHECK(code_of([&] { (void)huge<std::uint64_t>().allocate(most / 8); }) == HUGEPILOT_OVERFLOW);
}

void an_allocation_of_size_0_is_not_null() {
    thp<int> ints;
    int *none = ints.allocate(0), *more = ints.allocate(0);
    CHECK(none && more && none != more);
    ints.deallocate(none, 0);
    ints.deallocate(more, 0);
    std::vector<int, thp<int>> empty;
    empty.shrink_to_fit();
    CHECK(hugepilot_heap_alloc(NULL, 1, 1) == nullptr);
    CHECK(hugepilot_last_error() == HUGEPILOT_ARGUMENT);
    CHECK(hugepilot_heap_alloc(hugepilot_heap_thp(), 8, 3) == nullptr);
    CHECK(hugepilot_last_error() == HUGEPILOT_ALIGNMENT);
    hugepilot_heap_free(hugepilot_heap_thp(), nullptr);
    hugepilot_heap_delete(nullptr);
}

void a_pool_that_is_too_small_is_bad_alloc() {
    CHECK(code_of([] { (void)huge<char>().allocate(beyond_the_pool()); }) == HUGEPILOT_POOL_EMPTY);
    try {
        std::vector<char, huge<char>> beyond(beyond_the_pool());
        CHECK(!"it throws");
    } catch (const std::bad_alloc &error) {
        CHECK(std::strstr(error.what(), "hugetlb pool of 2MiB pages: "));
        CHECK(std::strstr(error.what(), "hugepilot pool set"));
    }
}

// Runs first, so that no other heap's memory is merged into the same line of smaps.
void the_usage_of_a_heap_equals_smaps() {
    void *large, *small;
    {
        hugepilot::heap heap(hugepilot::options("thp,base"));
        large = heap.allocate(40 * mib), small = heap.allocate(24);
        std::memset(large, 1, 40 * mib);
        std::memset(small, 1, 24);
        const auto usage = heap.usage();
        smaps one = smaps_at(large), other = smaps_at(small);
        if (one.start == other.start) other = smaps();
        CHECK(usage.thp_bytes == one.thp_bytes + other.thp_bytes);
        CHECK(usage.thp_bytes + usage.base_bytes == one.rss_bytes + other.rss_bytes);
        CHECK(one.rss_bytes >= 40 * mib);
        const auto thp_kib = std::size_t(usage.thp_bytes >> 10);
        std::printf("a heap: %zu KiB on transparent huge pages\n", thp_kib);

        const auto stats = heap.stats();
        CHECK(stats.allocated_bytes >= 40 * mib + 24 && stats.mapped_bytes >= stats.held_bytes);
        heap.deallocate(large, 40 * mib);
        CHECK(heap.stats().allocated_bytes < mib && !smaps_at(large).found);

        void *kept = heap.allocate(6 * mib);
        std::memset(kept, 1, 6 * mib);
        heap.deallocate(kept, 6 * mib);
        const std::size_t before = smaps_at(small).rss_bytes;
        CHECK(heap.stats().idle_bytes >= 4 * mib && heap.trim() >= 4 * mib);
        CHECK(smaps_at(small).found && smaps_at(small).rss_bytes + 4 * mib <= before);
    }
    CHECK(!smaps_at(small).found);
}

// The heap is deleted with an object in it.
void a_heap_serves_pmr_containers() {
    hugepilot::heap heap;
    using numbers = std::pmr::vector<int>;
    auto *left = new (heap.allocate(sizeof(numbers))) numbers(1000, 3, &heap);
    CHECK(left->at(999) == 3 && heap.stats().allocated_bytes >= 4000);
}

struct own_pages {
    static hugepilot_heap *handle() {
        static auto *const heap = new hugepilot::heap(hugepilot::options("collapse,base"));
        return heap->handle();
    }
};

void a_chain_of_your_own() {
    std::vector<int, hugepilot::allocator<int, own_pages>> numbers(100000, 1);
    hugepilot_stats stats;
    CHECK(hugepilot_heap_stats(own_pages::handle(), &stats) == HUGEPILOT_OK);
    CHECK(stats.allocated_bytes >= 400000 && numbers[99999] == 1);
}

// Each thread frees the objects of another.
void threads_free_objects_of_others() {
    const auto before = stats().allocated_bytes;
    std::vector<std::thread> threads;
    using texts = std::vector<std::vector<unsigned, thp<unsigned>>>;
    texts made[4];
    for (unsigned t = 0; t < 4; t++) {
        threads.emplace_back([&made, t] {
            for (unsigned i = 0; i < 20000; i++) made[t].emplace_back(i % 64, t * 100000 + i);
        });
    }
    for (auto &thread : threads) thread.join();
    threads.clear();
    for (unsigned t = 0; t < 4; t++) {
        threads.emplace_back([&made, t] {
            const texts &of_another = made[(t + 1) % 4];
            for (unsigned i = 0; i < 20000; i++) {
                for (unsigned value : of_another[i]) CHECK(value == (t + 1) % 4 * 100000 + i);
            }
            texts().swap(made[(t + 1) % 4]);
        });
    }
    for (auto &thread : threads) thread.join();
    CHECK(stats().allocated_bytes <= before + mib);
}

int child_exits(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// The child uses its copy, even if another thread of the parent was allocating during fork. Both
// access one number of each page, because each access takes long without optimisation.
void children_use_and_free() {
    constexpr std::size_t page = 4096 / sizeof(int);
    std::vector<int, thp<int>> numbers(mib, 1);
    std::atomic<bool> stop{false};
    std::thread busy([&stop] {
        while (!stop) std::set<int, std::less<int>, thp<int>>{1, 2, 3, 4, 5, 6, 7, 8, 9};
    });
    for (int round = 0; round < 20; round++) {
        const pid_t child = fork();
        if (child == 0) {
            bool right = numbers[mib - 1] == 1;
            for (std::size_t i = 0; i < mib; i += page) numbers[i] = 2;
            std::vector<int, thp<int>>().swap(numbers);
            std::set<int, std::less<int>, thp<int>> nodes;
            for (int i = 0; i < 10000; i++) nodes.insert(i);
            int *large = thp<int>().allocate(4 * mib);
            for (std::size_t i = 0; i < 4 * mib; i += page) large[i] = 5;
            right = right && nodes.size() == 10000 && large[4 * mib - page] == 5;
            thp<int>().deallocate(large, 4 * mib);
            _exit(right ? 0 : 9);
        }
        CHECK(child_exits(child) == 0);
        for (std::size_t i = 0; i < mib; i += page) CHECK(numbers[i] == 1);
    }
    stop = true;
    busy.join();
}

}  // namespace

int main() {
    the_usage_of_a_heap_equals_smaps();
    allocators_copy_convert_and_compare();
    containers_work();
    small_objects_share_pages();
    over_aligned_types_are_aligned();
    too_much_is_bad_alloc();
    an_allocation_of_size_0_is_not_null();
    a_pool_that_is_too_small_is_bad_alloc();
    a_heap_serves_pmr_containers();
    a_chain_of_your_own();
    threads_free_objects_of_others();
    children_use_and_free();
    std::puts("all checks passed");
}
