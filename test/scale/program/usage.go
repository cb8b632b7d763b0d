package program

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process has used.
type Usage struct {
	CPU time.Duration
	// RSS is in MB of 10^6 bytes.
	RSS float64
}

// ticks is the unit of processor time in /proc (USER_HZ, 100 on every Linux that Go
// runs on).
const ticks = time.Second / 100

// UsageOf reads what a process has used.
func UsageOf(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	out := Usage{}
	if out.CPU, err = processorTime(string(stat)); err != nil {
		return out, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	if out.RSS, err = resident(status); err != nil {
		return out, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return out, nil
}

// processorTime is utime and stime of /proc/PID/stat: fields 14 and 15, counted behind
// the name in brackets, which may hold blanks.
func processorTime(stat string) (time.Duration, error) {
	const utime, stime = 11, 12
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= stime {
		return 0, errors.New("its stat is too short")
	}
	user, err := strconv.ParseInt(fields[utime], 10, 64)
	system, systemErr := strconv.ParseInt(fields[stime], 10, 64)
	return time.Duration(user+system) * ticks, errors.Join(err, systemErr)
}

var vmRSS = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)

// resident is VmRSS of /proc/PID/status.
func resident(status []byte) (float64, error) {
	m := vmRSS.FindSubmatch(status)
	if m == nil {
		return 0, errors.New("its status has no VmRSS")
	}
	kib, err := strconv.ParseFloat(string(m[1]), 64)
	return kib * 1024 / 1e6, err
}
