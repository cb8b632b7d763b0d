package install

import (
	"testing"
	"time"
)

func TestWritten(t *testing.T) {
	lines, err := ReadWritten("0 10.00\n1 10.50\n2 12.50\n3 12.60\n")
	if err != nil || len(lines) != 4 {
		t.Fatalf("got %v, %v", lines, err)
	}
	for from, want := range map[int]time.Duration{0: 2 * time.Second, 1: 2 * time.Second, 2: 100 * time.Millisecond, 3: 0} {
		if got := Longest(lines, from); got.Round(time.Millisecond) != want {
			t.Errorf("from line %d on: %v, want %v", from, got, want)
		}
	}
	for journal, whole := range map[string]bool{
		"0\n1\n2\n3\n": true, "0\n1\n2\n3\n4\n": true, "": false, "0\n1\n2\n": false, "0\n2\n3\n": false, "0\n1\n2\n30\n": false, "1\n2\n3\n": false,
	} {
		if err := Complete(journal, lines); (err == nil) != whole {
			t.Errorf("journal %q: %v", journal, err)
		}
	}
	if Complete("0\n", nil) == nil {
		t.Error("a writer that wrote nothing lost nothing")
	}
	for _, log := range []string{"sh: no such file\n", "0 1.0\n2 1.1\n", "1 1.0\n"} {
		if got, err := ReadWritten(log); err == nil {
			t.Errorf("%q is taken for %v", log, got)
		}
	}
}
