/* Plugin for QEMU's user mode: data accesses of a program into shared memory.
 *
 * Copyright the authors of hugepilot. Licence: MIT, as in LICENSE-MIT, which QEMU's GPL allows.
 * SPDX-License-Identifier: MIT
 *
 * Each virtual CPU has a lane: a ring of chunks that only it fills, and hugepilot empties. A full
 * chunk is published under the next sequence number. If the ring is full, the thread waits, so
 * nothing is lost. A chunk also ends with each change of the mappings: the thread then waits until
 * hugepilot has read it, so that the mappings that it finds are those of the accesses.
 * channel.rs describes the same layout. */

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <stddef.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* QEMU's plugin interface, version 1, as far as it is used here. */
#define EXPORT __attribute__((visibility("default")))
typedef uint64_t plugin_id;
typedef uint32_t mem_info;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum cb_flags { CB_NO_REGS };
enum mem_rw { MEM_RW = 3 };
typedef void vcpu_cb(plugin_id id, unsigned vcpu);
typedef void exec_cb(unsigned vcpu, void *data);
typedef void mem_cb(unsigned vcpu, mem_info info, uint64_t address, void *data);
typedef void translate_cb(plugin_id id, struct qemu_plugin_tb *tb);
typedef void exit_cb(plugin_id id, void *data);
typedef void syscall_cb(plugin_id id, unsigned vcpu, int64_t number, uint64_t a, uint64_t b,
                        uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h);
typedef void syscall_ret_cb(plugin_id id, unsigned vcpu, int64_t number, int64_t result);
extern void qemu_plugin_register_vcpu_init_cb(plugin_id id, vcpu_cb *cb);
extern void qemu_plugin_register_vcpu_exit_cb(plugin_id id, vcpu_cb *cb);
extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, translate_cb *cb);
extern void qemu_plugin_register_atexit_cb(plugin_id id, exit_cb *cb, void *data);
extern void qemu_plugin_register_vcpu_syscall_cb(plugin_id id, syscall_cb *cb);
extern void qemu_plugin_register_vcpu_syscall_ret_cb(plugin_id id, syscall_ret_cb *cb);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, exec_cb *cb,
                                                   enum cb_flags flags, void *data);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, mem_cb *cb,
                                             enum cb_flags flags, enum mem_rw rw, void *data);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t n);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
extern unsigned qemu_plugin_mem_size_shift(mem_info info);
extern _Bool qemu_plugin_mem_is_store(mem_info info);
EXPORT int qemu_plugin_version = 1;

#define MAGIC 0x3165636172547048u
#define LANES 1024
#define DEPTH 8
#define CAPACITY 8192
#define LINE 64
#define STORE (1ull << 63)
#define CHANGE (1ull << 62)

enum { FREE, FILLING, FULL };

/* A change of the mappings is CHANGE with its kind, then its numbers. */
enum change { MAP = 1, UNMAP, REMAP };
#define NUMBERS 4

/* Linux's system calls and flags on x86-64. */
enum { CALL_MMAP = 9, CALL_MUNMAP = 11, CALL_MREMAP = 25 };
#define FIXED (0x10 | 0x100000)

struct control {
    uint64_t magic;      /* written last: the plugin is installed */
    uint32_t closed;     /* hugepilot reads no more */
    uint32_t finished;   /* 1: the program exits; 2: hugepilot has read all */
    uint64_t sequence;   /* next one */
    uint64_t lost;       /* accesses of threads without a lane */
    uint32_t lanes;      /* lanes used so far */
    uint32_t threads;    /* threads so far */
    uint32_t forks;
};

struct header {
    uint32_t state;
    uint32_t thread;
    uint64_t sequence;
    uint32_t count;
    uint32_t folded;
    uint64_t ended;      /* the thread has ended after these accesses */
};

#define HEADERS 4096
#define DATA (HEADERS + LANES * DEPTH * sizeof(struct header))
#define CHUNK (CAPACITY * sizeof(uint64_t))
#define LENGTH (DATA + (size_t)LANES * DEPTH * CHUNK)

/* Access that a later one of the same instruction may continue. */
struct piece {
    uint64_t address;    /* with STORE */
    uint64_t size;
};

struct lane {
    struct header *head; /* of the chunk being filled; null before the first thread */
    uint64_t *data;
    uint64_t next;       /* address behind the last piece of the running instruction */
    uint64_t rep_pc;
    uint64_t *rep_end;   /* end of the chunk after the last access of a repeated instruction */
    struct piece rep[2];
    unsigned rep_next;
    unsigned slot;
    uint64_t call[4];    /* arguments of the running system call */
} __attribute__((aligned(128)));

static char *shared;
static struct control *control;
static struct lane lanes[LANES];
static int is_child;

static struct header *header_of(const struct lane *lane)
{
    size_t chunk = (size_t)(lane - lanes) * DEPTH + lane->slot;
    return (struct header *)(shared + HEADERS) + chunk;
}

/* Waits while a chunk waits to be read. */
static void await(const struct header *head)
{
    const struct timespec nap = { 0, 20000 };
    for (int turn = 0; __atomic_load_n(&head->state, __ATOMIC_ACQUIRE) == FULL; turn++) {
        if (__atomic_load_n(&control->closed, __ATOMIC_RELAXED) || is_child)
            break;
        if (turn < 4)
            sched_yield();
        else
            nanosleep(&nap, NULL);
    }
}

/* Waits until the next chunk of the lane is free, and begins it. */
static void begin(struct lane *lane, uint32_t thread)
{
    struct header *head = header_of(lane);
    await(head);
    head->thread = thread;
    head->count = 0;
    head->folded = 0;
    head->ended = 0;
    __atomic_store_n(&head->state, FILLING, __ATOMIC_RELEASE);
    size_t chunk = (size_t)(lane - lanes) * DEPTH + lane->slot;
    lane->data = (uint64_t *)(shared + DATA + chunk * CHUNK);
    lane->head = head;
}

static __attribute__((noinline)) void publish(struct lane *lane)
{
    struct header *head = lane->head;
    if (is_child || __atomic_load_n(&control->closed, __ATOMIC_RELAXED)) {
        head->count = 0;
        head->folded = 0;
        head->ended = 0;
        return;
    }
    head->sequence = __atomic_fetch_add(&control->sequence, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&head->state, FULL, __ATOMIC_RELEASE);
    lane->slot = (lane->slot + 1) % DEPTH;
    begin(lane, head->thread);
}

/* The count in the header is the position, so that the chunk of a killed program is readable. */
static inline void record(struct lane *lane, uint64_t access)
{
    struct header *head = lane->head;
    uint32_t count = head->count;
    lane->data[count] = access;
    head->count = count + 1;
    if (__builtin_expect(count + 1 == CAPACITY, 0))
        publish(lane);
}

/* Publishes the accesses so far, and waits until they are read. */
static void settle(struct lane *lane)
{
    if (lane->head->count != 0)
        publish(lane);
    const struct header *first = (struct header *)(shared + HEADERS) + (lane - lanes) * DEPTH;
    for (int i = 0; i < DEPTH; i++)
        await(&first[i]);
}

static void record_change(struct lane *lane, enum change kind, const uint64_t numbers[NUMBERS])
{
    if (lane->head->count > CAPACITY - 1 - NUMBERS)
        publish(lane);
    struct header *head = lane->head;
    uint64_t *data = lane->data + head->count;
    data[0] = CHANGE | kind;
    for (int i = 0; i < NUMBERS; i++)
        data[1 + i] = numbers[i];
    head->count += 1 + NUMBERS;
    settle(lane);
}

static inline struct lane *lane_of(unsigned vcpu)
{
    if (__builtin_expect(vcpu >= LANES, 0)) {
        __atomic_fetch_add(&control->lost, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    return &lanes[vcpu];
}

static inline uint64_t access_of(mem_info info, uint64_t address)
{
    return (address & ~STORE) | (qemu_plugin_mem_is_store(info) ? STORE : 0);
}

/* Access of an instruction that makes at most one per direction. */
static void on_plain(unsigned vcpu, mem_info info, uint64_t address, void *data)
{
    struct lane *lane = lane_of(vcpu);
    (void)data;
    if (lane)
        record(lane, access_of(info, address));
}

/* Begin of an instruction whose accesses QEMU splits. */
static void on_start(unsigned vcpu, void *data)
{
    (void)data;
    if (vcpu < LANES)
        lanes[vcpu].next = 0;
}

/* Part of an access that QEMU splits: folded if it continues the part before within a line. */
static void on_part(unsigned vcpu, mem_info info, uint64_t address, void *data)
{
    struct lane *lane = lane_of(vcpu);
    uint64_t access = access_of(info, address);
    (void)data;
    if (!lane)
        return;
    if (access == lane->next && address % LINE != 0)
        lane->head->folded++;
    else
        record(lane, access);
    lane->next = access + (1ull << qemu_plugin_mem_size_shift(info));
}

/* Element of a repeated string instruction: folded if it is beside an element of the same line and
 * direction, and no other instruction accessed memory since. */
static void on_element(unsigned vcpu, mem_info info, uint64_t address, void *data)
{
    struct lane *lane = lane_of(vcpu);
    uint64_t access = access_of(info, address);
    uint64_t size = 1ull << qemu_plugin_mem_size_shift(info);
    if (!lane)
        return;
    if (lane->rep_pc != (uint64_t)data || lane->rep_end != lane->data + lane->head->count) {
        lane->rep_pc = (uint64_t)data;
        lane->rep[0] = lane->rep[1] = (struct piece){ 0, 0 };
    }
    for (int i = 0; i < 2; i++) {
        struct piece *piece = &lane->rep[i];
        if (access / LINE == piece->address / LINE && piece->size
            && (access == piece->address + size || access + size == piece->address)) {
            piece->address = access;
            lane->head->folded++;
            return;
        }
    }
    lane->rep[lane->rep_next] = (struct piece){ access, size };
    lane->rep_next ^= 1;
    record(lane, access);
    lane->rep_end = lane->data + lane->head->count;
}

enum kind { PLAIN, SPLIT, REPEATED };

/* Classifies an instruction of 64-bit code by its prefixes and opcode. A wrong SPLIT costs time
 * only. */
static enum kind classify(const uint8_t *code, size_t size)
{
    size_t at = 0;
    int repeated = 0;
    for (; at < size; at++) {
        uint8_t byte = code[at];
        if (byte == 0xf2 || byte == 0xf3)
            repeated = 1;
        else if (byte != 0x66 && byte != 0x67 && byte != 0xf0 && (byte & 0xe7) != 0x26
                 && (byte & 0xfe) != 0x64 && (byte & 0xf0) != 0x40)
            break;
    }
    if (at >= size)
        return PLAIN;
    uint8_t op = code[at];
    if (repeated && ((op >= 0xa4 && op <= 0xa7) || (op >= 0xaa && op <= 0xaf)))
        return REPEATED;
    if (op == 0xc4 || op == 0xc5 || op == 0x62 || (op >= 0xd8 && op <= 0xdf))
        return SPLIT;
    if (op != 0x0f || at + 1 >= size)
        return PLAIN;
    op = code[at + 1];
    /* Conditional moves, jumps, bit tests, extensions and cmpxchg access one operand. */
    return (op >= 0x40 && op < 0x50) || (op >= 0x80 && op < 0xae) || (op >= 0xaf && op < 0xc2)
        ? PLAIN : SPLIT;
}

static void on_translate(plugin_id id, struct qemu_plugin_tb *tb)
{
    size_t count = qemu_plugin_tb_n_insns(tb);
    (void)id;
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        mem_cb *cb = on_plain;
        switch (classify(qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn))) {
        case PLAIN:
            break;
        case SPLIT:
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_start, CB_NO_REGS, NULL);
            cb = on_part;
            break;
        case REPEATED:
            cb = on_element;
            break;
        }
        void *pc = (void *)qemu_plugin_insn_vaddr(insn);
        qemu_plugin_register_vcpu_mem_cb(insn, cb, CB_NO_REGS, MEM_RW, pc);
    }
}

/* Accesses to memory that a call unmaps are read before it: their mappings still exist. */
static void on_call(plugin_id id, unsigned vcpu, int64_t number, uint64_t a, uint64_t b, uint64_t c,
                    uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
    (void)id, (void)e, (void)f, (void)g, (void)h;
    if (vcpu >= LANES || !lanes[vcpu].head || is_child)
        return;
    struct lane *lane = &lanes[vcpu];
    const uint64_t numbers[NUMBERS] = { a, b, c, d };
    for (int i = 0; i < 4; i++)
        lane->call[i] = numbers[i];
    if (number == CALL_MUNMAP || number == CALL_MREMAP || (number == CALL_MMAP && (d & FIXED)))
        settle(lane);
}

static void on_result(plugin_id id, unsigned vcpu, int64_t number, int64_t result)
{
    (void)id;
    if (vcpu >= LANES || !lanes[vcpu].head || is_child || (uint64_t)result > -4096ull)
        return;
    const uint64_t *call = lanes[vcpu].call;
    if (number == CALL_MMAP) {
        const uint64_t numbers[NUMBERS] = { call[0], call[1], result, call[3] };
        record_change(&lanes[vcpu], MAP, numbers);
    } else if (number == CALL_MUNMAP) {
        record_change(&lanes[vcpu], UNMAP, call);
    } else if (number == CALL_MREMAP) {
        const uint64_t numbers[NUMBERS] = { call[0], call[1], result, call[2] };
        record_change(&lanes[vcpu], REMAP, numbers);
    }
}

/* QEMU reuses the number of a virtual CPU when its thread has ended. */
static void on_thread(plugin_id id, unsigned vcpu)
{
    (void)id;
    if (vcpu >= LANES || is_child)
        return;
    struct lane *lane = &lanes[vcpu];
    uint32_t thread = __atomic_fetch_add(&control->threads, 1, __ATOMIC_RELAXED);
    uint32_t used = __atomic_load_n(&control->lanes, __ATOMIC_RELAXED);
    while (used <= vcpu
           && !__atomic_compare_exchange_n(&control->lanes, &used, vcpu + 1, 0, __ATOMIC_RELEASE,
                                           __ATOMIC_RELAXED)) {
    }
    if (!lane->head) {
        begin(lane, thread);
        return;
    }
    if (lane->head->count != 0)
        publish(lane);
    lane->head->thread = thread;
}

static void on_thread_end(plugin_id id, unsigned vcpu)
{
    (void)id;
    if (vcpu >= LANES || !lanes[vcpu].head)
        return;
    lanes[vcpu].head->ended = 1;
    publish(&lanes[vcpu]);
}

/* Publishes the rest of all threads, which QEMU has stopped, and waits until it was read: the
 * mappings of the program are readable until then. */
static void on_exit_program(plugin_id id, void *data)
{
    const struct timespec nap = { 0, 100000 };
    (void)id, (void)data;
    if (is_child)
        return;
    for (unsigned vcpu = 0; vcpu < LANES; vcpu++) {
        if (lanes[vcpu].head && lanes[vcpu].head->count != 0)
            publish(&lanes[vcpu]);
    }
    __atomic_store_n(&control->finished, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&control->finished, __ATOMIC_ACQUIRE) == 1
           && !__atomic_load_n(&control->closed, __ATOMIC_RELAXED))
        nanosleep(&nap, NULL);
}

/* A forked child gets memory of its own in place of the shared memory, and records nothing. */
static void on_fork_child(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    if (is_child)
        return;
    __atomic_fetch_add(&control->forks, 1, __ATOMIC_RELAXED);
    if (mmap(shared, LENGTH, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
        _exit(127);
    is_child = 1;
}

/* Takes one argument, `fd=N`: the descriptor of the shared memory. */
EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
    (void)info;
    if (argc != 1 || argv[0][0] != 'f' || argv[0][1] != 'd' || argv[0][2] != '=')
        return -1;
    int fd = atoi(argv[0] + 3);
    shared = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (shared == MAP_FAILED)
        return -1;
    /* The program must not see the descriptor. */
    close(fd);
    control = (struct control *)shared;
    if (pthread_atfork(NULL, NULL, on_fork_child) != 0)
        return -1;
    qemu_plugin_register_vcpu_init_cb(id, on_thread);
    qemu_plugin_register_vcpu_exit_cb(id, on_thread_end);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
    qemu_plugin_register_vcpu_syscall_cb(id, on_call);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, on_result);
    qemu_plugin_register_atexit_cb(id, on_exit_program, NULL);
    __atomic_store_n(&control->magic, MAGIC, __ATOMIC_RELEASE);
    return 0;
}
