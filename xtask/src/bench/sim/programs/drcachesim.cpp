// Feeds the TLB simulator of DynamoRIO's drcachesim with the loads of a log of lackey, and prints
// accesses, seconds, misses of L1 and misses of L2. Links with the simulator's own files.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "memref.h"
#include "tlb_simulator.h"

using namespace dynamorio::drmemtrace;

class counted_t : public tlb_simulator_t {
public:
    using tlb_simulator_t::tlb_simulator_t;
    long long misses_of_l1() const { return of(dtlbs_[0]); }
    long long misses_of_l2() const { return of(lltlbs_[0]); }

private:
    static long long of(tlb_t *tlb) { return tlb->get_stats()->get_metric(metric_name_t::MISSES); }
};

int main(int, char **arguments) {
    std::vector<unsigned long> addresses;
    std::ifstream log(arguments[1]);
    for (std::string line; std::getline(log, line);)
        addresses.push_back(std::stoul(line.substr(3), nullptr, 16));
    tlb_simulator_knobs_t knobs;
    knobs.num_cores = 1;
    knobs.TLB_L1D_entries = 64;
    knobs.TLB_L1D_assoc = 4;
    knobs.TLB_L2_entries = 1024;
    knobs.TLB_L2_assoc = 8;
    knobs.TLB_replace_policy = "LRU";
    counted_t simulator(knobs);
    memref_t access;
    std::memset(&access, 0, sizeof access);
    access.data.type = TRACE_TYPE_READ;
    access.data.pid = access.data.tid = 1;
    access.data.size = 8;
    auto begun = std::chrono::steady_clock::now();
    for (unsigned long address : addresses) {
        access.data.addr = address;
        if (!simulator.process_memref(access))
            return 1;
    }
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
    std::printf("%zu %.6f %lld %lld\n", addresses.size(), seconds.count(),
                simulator.misses_of_l1(), simulator.misses_of_l2());
}
