package hostdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// Roots are the directories in which the host shows its devices.
type Roots struct {
	// Sysfs is /sys or a tree like it.
	Sysfs string
	// Dev is /dev or a tree like it.
	Dev string
}

// DefaultRoots are those of a real machine.
func DefaultRoots() Roots { return Roots{Sysfs: "/sys", Dev: "/dev"} }

func (r Roots) sys(parts ...string) string {
	return filepath.Join(append([]string{r.Sysfs}, parts...)...)
}

// pciAddress is [domain:]bus:device.function in hex, as lspci(8) prints it.
var pciAddress = regexp.MustCompile(`^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$`)

// NormalizeAddress returns a PCI address in the kernel's form, lower case with
// domain: "3B:00.2" is "0000:3b:00.2". The all-zero address, which SNAP reports
// for a function that has none yet, and everything else wrap ErrAddress.
func NormalizeAddress(s string) (string, error) {
	m := pciAddress.FindStringSubmatch(strings.ToLower(strings.TrimSpace(s)))
	if m == nil {
		return "", fmt.Errorf("PCI address %q: want domain:bus:device.function, such as 0000:3b:00.2: %w", s, ErrAddress)
	}
	domain := m[1]
	if domain == "" {
		domain = "0000"
	}
	if strings.Trim(domain+m[2]+m[3]+m[4], "0") == "" {
		return "", fmt.Errorf("PCI address %q: the DPU gave the function no address yet: %w", s, ErrAddress)
	}
	return fmt.Sprintf("%s:%s:%s.%s", domain, m[2], m[3], m[4]), nil
}

// ParseNamespaceID reads an NVMe namespace id, 1..0xfffffffe (NVMe base
// specification 2.0, 3.2.1.5).
func ParseNamespaceID(s string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n < 1 || n > 0xfffffffe {
		return 0, fmt.Errorf("NVMe namespace id %q: want a number from 1 on: %w", s, ErrAddress)
	}
	return n, nil
}

// readTrimmed returns the content of a sysfs attribute without its newline.
func readTrimmed(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}

func readInt(path string) (int64, error) {
	s, err := readTrimmed(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s holds %q, want a number: %w", path, s, err)
	}
	return n, nil
}

const (
	firstWait = 20 * time.Millisecond
	longWait  = 500 * time.Millisecond
)

// poll calls try until it succeeds, fails with something other than ErrAbsent,
// or ctx ends; then the error says what was missing last. The waits grow from
// 20 to 500 ms: sysfs gives no reliable notification to wait on.
func poll(ctx context.Context, c clock.Clock, try func() error) error {
	start := c.Now()
	for wait := firstWait; ; wait = min(wait*2, longWait) {
		err := try()
		if err == nil || !errors.Is(err, ErrAbsent) {
			return err
		}
		t := c.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("gave up after %s (%w): %w", c.Since(start).Round(time.Millisecond), ctx.Err(), err)
		case <-t.C():
		}
	}
}
