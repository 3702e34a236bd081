// A Go program whose runtime frees memory lazily, with GODEBUG=madvdontneed=0: half of its heap.
//
//	ready 0x0 LEN PID   LEN bytes were allocated, and every other 8 KiB were freed
//	ok ROUNDS           at the end of stdin, after a last check of all kept blocks; exit 0
//	wrong INDEX         a word is wrong; exit 1
//
// It reads words of the kept blocks at random all the time.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync/atomic"
)

const (
	words  = 1024 // of a block: 8 KiB, a page of the Go runtime
	blocks = 16384
)

func check(kept []*[words]uint64, i uint64) {
	if kept[i%uint64(len(kept))][i%words] != i%uint64(len(kept))+1 {
		fmt.Println("wrong", i)
		os.Exit(1)
	}
}

func main() {
	var kept, freed []*[words]uint64
	for i := 0; i < blocks; i++ {
		block := new([words]uint64)
		for word := range block {
			block[word] = uint64(i/2) + 1
		}
		if i%2 == 0 {
			kept = append(kept, block)
		} else {
			freed = append(freed, block)
		}
	}
	freed = nil
	debug.FreeOSMemory()
	fmt.Println("ready 0x0", blocks*words*8, os.Getpid())

	var ended atomic.Bool
	go func() {
		io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	state, rounds := uint64(1), 0
	for ; !ended.Load(); rounds++ {
		for n := 0; n < 1000; n++ {
			state = state*6364136223846793005 + 1442695040888963407
			check(kept, state>>33)
		}
	}
	for i := range kept {
		check(kept, uint64(i))
	}
	fmt.Println("ok", rounds)
}
