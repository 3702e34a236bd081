"""Random lookups in a dict, one in eight an update. Argument: entries."""

import random
import sys
import time

EVERY = 0.02
ROUND = 1024


def main():
    entries = int(sys.argv[1])
    table = {key * 0x9E3779B1 & 0xFFFFFFFFFF: key for key in range(entries)}
    print("ready", flush=True)
    below, total = random.Random(1).random, 0
    while True:
        begun, ops = time.monotonic(), 0
        while time.monotonic() - begun < EVERY:
            for i in range(ROUND):
                key = int(below() * entries) * 0x9E3779B1 & 0xFFFFFFFFFF
                if i % 8 == 0:
                    table[key] = i
                else:
                    total += table[key]
            ops += ROUND
        print("ops", ops, flush=True)


main()
