// Package freeport owns one idea: a TCP port for a server that is started later.
//
// A port that the kernel chose (":0") is not one: it lies where outgoing
// connections get theirs, so that after it was closed any process can have it
// for as long as a connection lasts. The ports of this package lie below that
// range, where only servers are.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
)

const (
	// lowest is the first port that is given. Below it are the usual ports of
	// Kubernetes' and Moor's programs (2379, 6443, 8080, 9808, 10250, ...).
	lowest = 12000
	// rangeFile has the first and the last port of outgoing connections
	// (ip_local_port_range in ip-sysctl.rst of Linux).
	rangeFile = "/proc/sys/net/ipv4/ip_local_port_range"
	// defaultEnd is the first port of outgoing connections if the file does not
	// exist: Linux' own default, and below those of other systems.
	defaultEnd = 32768
	// tries is how many ports are looked at: more than one process has servers.
	tries = 1000
)

var (
	mu    sync.Mutex
	given = map[int]struct{}{}
)

// Address is one of 127.0.0.1 where nothing listens now and no outgoing
// connection ever begins. It is given once in the life of a process. Another
// process may be given it, at random. Safe for concurrent use.
func Address() (string, error) {
	end, err := end(rangeFile)
	if err != nil {
		return "", err
	}
	mu.Lock()
	defer mu.Unlock()
	for range tries {
		port := lowest + rand.IntN(end-lowest)
		if _, again := given[port]; again {
			continue
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		l, err := net.Listen("tcp", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("look for a free port: %w", err)
		}
		given[port] = struct{}{}
		return address, l.Close()
	}
	return "", fmt.Errorf("look for a free port: none of %d between %d and %d is free", tries, lowest, end)
}

// end is the first port of outgoing connections.
func end(file string) (int, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return defaultEnd, nil
	}
	if err != nil {
		return 0, err
	}
	var first, last int
	if _, err := fmt.Sscan(string(text), &first, &last); err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	if first <= lowest {
		return 0, fmt.Errorf("outgoing connections get ports from %d (%s): no port above %d is left for servers; raise it", first, file, lowest)
	}
	return first, nil
}
