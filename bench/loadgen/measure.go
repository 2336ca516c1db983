package main

import (
	"bufio"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// warmUp returns once the load may be measured: after 2 s, or with steps when a line arrives on standard input. Until
// then steps prints the messages and the broker's CPU time of each second, from which the reader knows when to send it.
func warmUp(pid int, msgs *atomic.Int64, steps bool) {
	if !steps {
		time.Sleep(2 * time.Second)
		return
	}
	told := make(chan struct{})
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		close(told)
	}()
	count, used := msgs.Load(), cpu(pid)
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-told:
			return
		case <-tick.C:
			count1, used1 := msgs.Load(), cpu(pid)
			fmt.Printf("{\"step_msgs\":%d,\"step_cpu_us\":%.0f}\n", count1-count, (used1-used)*1e6)
			count, used = count1, used1
		}
	}
}

// cpu returns the CPU time of a process in seconds, by its own clock: /proc shows only hundredths of a second.
func cpu(pid int) float64 {
	var at syscall.Timespec
	clock := ^pid<<3 | 2 // as clock_getcpuclockid(3) makes it
	if _, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&at)), 0); failed != 0 {
		return 0
	}
	return float64(at.Nano()) / 1e9
}
