package cleanup

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/test/devcluster/layout"
)

// ParseMounts returns the mount points of a mountinfo file that belong to the
// bed, the innermost first, which is the order to unmount them in.
func ParseMounts(mountinfo io.Reader) ([]string, error) {
	var points []string
	scanner := bufio.NewScanner(mountinfo)
	for scanner.Scan() {
		left, right, ok := strings.Cut(scanner.Text(), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 2 {
			continue
		}
		source, point := unescape(r[1]), unescape(l[4])
		if layout.Owns(point) || layout.Owns(source) {
			points = append([]string{point}, points...)
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	return points, nil
}

// unescape undoes the octal escapes by which the kernel writes blanks.
func unescape(field string) string {
	var out strings.Builder
	for i := 0; i < len(field); i++ {
		if field[i] == '\\' && i+3 < len(field) {
			if c, err := strconv.ParseUint(field[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		out.WriteByte(field[i])
	}
	return out.String()
}

func mounts() ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	return ParseMounts(f)
}

// unmount detaches lazily, which also works for a FUSE mount whose server is
// dead.
func unmount(points []string) []error {
	var errs []error
	for _, p := range points {
		if err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && err != unix.EINVAL && err != unix.ENOENT {
			errs = append(errs, fmt.Errorf("unmount %s: %w", p, err))
		}
	}
	return errs
}
