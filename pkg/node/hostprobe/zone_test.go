package hostprobe

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestNumbered(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	number := strconv.Itoa(lo.Index)
	for address, want := range map[string]string{
		"192.168.100.1:9400": "192.168.100.1:9400",
		":9400":              ":9400",
		"[fe80::1]:9400":     "[fe80::1]:9400",
		"[fe80::1%7]:9400":   "[fe80::1%7]:9400",
		"[fe80::1%lo]:9400":  "[fe80::1%" + number + "]:9400",
	} {
		if got, err := numbered(address); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", address, got, err, want)
		}
	}
	for address, words := range map[string]string{
		"fe80::1%lo":            "give address:port",
		"[fe80::1%nowhere]:940": "network interface nowhere",
	} {
		if got, err := numbered(address); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %q, %v; want %q", address, got, err, words)
		}
	}
}

// TestWhileNumbered: what listens on an interface that was made anew, or is gone, is told; what has
// no interface in its address is not.
func TestWhileNumbered(t *testing.T) {
	lo, err := numbered("[fe80::1%lo]:9400")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		address, now string
		ends         bool
	}{
		"as it is":   {"[fe80::1%lo]:9400", lo, false},
		"made anew":  {"[fe80::1%lo]:9400", "[fe80::1%99]:9400", true},
		"gone":       {"[fe80::1%nowhere]:9400", "[fe80::1%99]:9400", true},
		"of IPv4":    {"192.168.100.1:9400", "192.168.100.1:9400", false},
		"any of all": {":9400", ":9400", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := whileNumbered(t.Context(), c.address, c.now)
				defer cancel()
				time.Sleep(2 * zonePeriod)
				if ended := ctx.Err() != nil; ended != c.ends {
					t.Errorf("ended %t, want %t", ended, c.ends)
				}
			})
		})
	}
}
