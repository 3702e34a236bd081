// Random lookups in a map of Go, one in eight an update. Argument: entries.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

const every = 20 * time.Millisecond

func main() {
	entries, err := strconv.ParseUint(os.Args[1], 10, 64)
	if err != nil {
		panic(err)
	}
	table := make(map[uint64]uint64)
	for key := uint64(0); key < entries; key++ {
		table[key*0x9e3779b97f4a7c15] = key
	}
	fmt.Println("ready")
	random, sum := uint64(88172645463325252), uint64(0)
	for {
		begun, ops := time.Now(), 0
		for time.Since(begun) < every {
			for i := 0; i < 1024; i++ {
				random ^= random << 13
				random ^= random >> 7
				random ^= random << 17
				key := random % entries * 0x9e3779b97f4a7c15
				if i%8 == 0 {
					table[key] = random
				} else {
					sum += table[key]
				}
			}
			ops += 1024
		}
		if _, err := fmt.Println("ops", ops); err != nil || sum == 1 {
			return
		}
	}
}
