# Discrete event simulation, as omnetpp: a priority queue of messages between modules, all of them
# small objects of the heap.
import heapq
import sys


class Message:
    __slots__ = ("time", "to", "hops")

    def __init__(self, time, to):
        self.time, self.to, self.hops = time, to, 0

    def __lt__(self, other):
        return self.time < other.time


modules, messages, events = (int(word) for word in sys.argv[1:4])
counts = [[0, module * 7919 % modules] for module in range(modules)]
queue = [Message(one * 7919 % 1000, one % modules) for one in range(messages)]
heapq.heapify(queue)
for event in range(events):
    message = queue[0]
    module = counts[message.to]
    module[0] += 1
    message.time += 1 + (event * 2654435761) % 1000
    message.to = (module[1] + event) % modules
    message.hops += 1
    heapq.heapreplace(queue, message)
print(max(module[0] for module in counts))
