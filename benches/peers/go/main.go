// The speed table's workloads for Go on one processor (GOMAXPROCS=1).
// usage: peers WORKLOAD NUMBER...   prints nanoseconds of CPU time per operation
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

func cpu() float64 {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return float64(usage.Utime.Nano() + usage.Stime.Nano())
}

func yields(n, m int) float64 {
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	ready.Add(n)
	done.Add(n)
	for i := 0; i < n; i++ {
		go func() {
			ready.Done()
			<-gate
			for j := 0; j < m; j++ {
				runtime.Gosched()
			}
			done.Done()
		}()
	}
	ready.Wait()
	runtime.GC()
	start := cpu()
	close(gate)
	done.Wait()
	return (cpu() - start) / float64(n*m)
}

func pairs(count, rounds int) float64 {
	var done sync.WaitGroup
	done.Add(2 * count)
	start := cpu()
	for i := 0; i < count; i++ {
		there, back := make(chan int, 1), make(chan int, 1)
		go func() {
			for j := 0; j < rounds; j++ {
				there <- j
				<-back
			}
			done.Done()
		}()
		go func() {
			for j := 0; j < rounds; j++ {
				back <- <-there
			}
			done.Done()
		}()
	}
	done.Wait()
	return (cpu() - start) / float64(2*count*rounds)
}

func stream(messages, capacity int) float64 {
	wire := make(chan int, capacity)
	sum := make(chan int)
	start := cpu()
	go func() {
		for j := 1; j <= messages; j++ {
			wire <- j
		}
		close(wire)
	}()
	go func() {
		total := 0
		for value := range wire {
			total += value
		}
		sum <- total
	}()
	if <-sum != messages*(messages+1)/2 {
		panic("sum")
	}
	return (cpu() - start) / float64(messages)
}

func spawn(n int) float64 {
	var done sync.WaitGroup
	done.Add(n)
	start := cpu()
	for i := 0; i < n; i++ {
		go func() { done.Done() }()
	}
	done.Wait()
	return (cpu() - start) / float64(n)
}

// Real timers with a tick of a microsecond: more wakes are requested than timers can deliver, so it is CPU-bound like virtual ticks.
func sleepers(n, m int) float64 {
	var done sync.WaitGroup
	done.Add(n)
	gate := make(chan struct{})
	for i := 0; i < n; i++ {
		state := uint64(i)*2654435761 + 88172645463325252
		go func() {
			<-gate
			for j := 0; j < m; j++ {
				state ^= state << 13
				state ^= state >> 7
				state ^= state << 17
				time.Sleep(time.Duration(state%1000+1) * time.Microsecond)
			}
			done.Done()
		}()
	}
	time.Sleep(100 * time.Millisecond)
	runtime.GC()
	start := cpu()
	close(gate)
	done.Wait()
	return (cpu() - start) / float64(n*m)
}

func main() {
	var numbers [2]int
	for i, text := range os.Args[2:] {
		numbers[i], _ = strconv.Atoi(text)
	}
	var figure float64
	switch os.Args[1] {
	case "yield":
		figure = yields(numbers[0], numbers[1])
	case "pairs":
		figure = pairs(numbers[0], numbers[1])
	case "stream":
		figure = stream(numbers[0], numbers[1])
	case "spawn":
		figure = spawn(numbers[0])
	case "sleepers":
		figure = sleepers(numbers[0], numbers[1])
	}
	fmt.Printf("%.3f\n", figure)
}
