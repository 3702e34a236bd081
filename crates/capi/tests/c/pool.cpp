// Tests of hugepilot::huge_page_allocator on a pool with 32 free pages of 2 MiB.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <hugepilot.hpp>
#include <set>

#include "check.h"

namespace {

constexpr std::size_t mib = 1 << 20;

template <class T>
using huge = hugepilot::huge_page_allocator<T>;

hugepilot_usage usage() {
    hugepilot_usage usage;
    CHECK(hugepilot_heap_usage(hugepilot_heap_hugetlb(), &usage) == HUGEPILOT_OK);
    return usage;
}

int child_exits(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void large_objects_are_on_the_pool() {
    std::vector<int, huge<int>> numbers(5 * mib, 3);
    const smaps smaps = smaps_at(numbers.data());
    CHECK(smaps.hugetlb_bytes == 20 * mib && smaps.thp_bytes == 0);
    CHECK(usage().hugetlb_2m_bytes >= 20 * mib && usage().base_bytes == 0);
    CHECK(usage().thp_bytes == 0);
}

void small_objects_share_its_pages() {
    std::set<int, std::less<int>, huge<int>> nodes;
    for (int i = 0; i < 100000; i++) nodes.insert(i);
    CHECK(smaps_at(&*nodes.begin()).hugetlb_bytes >= 2 * mib);
    CHECK(usage().hugetlb_2m_bytes <= 8 * mib);
}

// 40 of 64 MiB are in use, so that the child has free pages to write to.
void a_child_has_its_copy() {
    std::vector<char, huge<char>> bytes(20 * mib, 1);
    const pid_t child = fork();
    if (child == 0) {
        bool right = bytes[20 * mib - 1] == 1;
        std::memset(bytes.data(), 2, bytes.size());
        right = right && bytes[0] == 2;
        std::vector<char, huge<char>>().swap(bytes);
        _exit(right ? 0 : 9);
    }
    CHECK(child_exits(child) == 0 && bytes[0] == 1 && bytes[20 * mib - 1] == 1);
}

void an_empty_pool_is_bad_alloc_until_there_are_pages_again() {
    std::vector<std::vector<char, huge<char>>> taken;
    try {
        for (;;) taken.emplace_back(10 * mib, char(taken.size()));
    } catch (const std::bad_alloc &error) {
        CHECK(std::strstr(error.what(), "hugetlb pool of 2MiB pages: "));
    }
    CHECK(taken.size() >= 4 && taken.size() <= 6);
    for (std::size_t i = 0; i < taken.size(); i++) {
        CHECK(taken[i].front() == char(i) && taken[i].back() == char(i));
    }
    const std::size_t most = taken.size();
    taken.pop_back();
    taken.emplace_back(10 * mib, 'x');
    CHECK(taken.size() == most);
}

}  // namespace

int main() {
    large_objects_are_on_the_pool();
    small_objects_share_its_pages();
    a_child_has_its_copy();
    an_empty_pool_is_bad_alloc_until_there_are_pages_again();
    std::puts("all checks passed");
}
