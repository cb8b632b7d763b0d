package fusepath

import (
	"testing"

	"golang.org/x/sys/unix"
)

func opened(t *testing.T) int {
	t.Helper()
	fd, err := unix.Open(t.TempDir(), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

func TestDescriptors(t *testing.T) {
	d := newDescriptors()
	one, two := opened(t), opened(t)
	d.add(one)
	d.add(two)
	d.close(one)
	if isOpen(one) || !isOpen(two) {
		t.Fatalf("of one and two, %v and %v are open after one was closed", isOpen(one), isOpen(two))
	}
	d.end()
	if isOpen(two) {
		t.Error("two is open after the end")
	}
	// The numbers are others' now.
	three, four := opened(t), opened(t)
	d.close(one)
	d.close(two)
	if !isOpen(three) || !isOpen(four) {
		t.Error("a descriptor opened elsewhere was closed")
	}
	d.add(three)
	if isOpen(three) {
		t.Error("one that came after the end is open")
	}
	if err := unix.Close(four); err != nil {
		t.Error(err)
	}
}
