package writelog

import (
	"os"
	"strings"
	"testing"
)

func TestLog(t *testing.T) {
	dir, long := t.TempDir(), strings.Repeat("d", MaxName)
	one, err := Open(dir, "/x/vol.img")
	if err != nil {
		t.Fatal(err)
	}
	two, err := Open(dir, "/y/vol.img")
	if err != nil {
		t.Fatal(err)
	}
	const each = 200
	done := make(chan error, 4)
	for i, l := range []*Log{one, one, two, two} {
		go func() {
			var err error
			for k := range each {
				if err == nil {
					err = l.Append([]string{"dpu-1", long}[i/2], int64(k)*4096, 1<<40)
				}
			}
			done <- err
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	path := Path(dir, "vol.img")
	writes, err := Read(path) // checks the sequence
	if err != nil || len(writes) != 4*each {
		t.Fatalf("%d writes, %v", len(writes), err)
	}
	for i, w := range writes {
		if w.Length != 1<<40 || (w.DPU != "dpu-1" && w.DPU != long) || (i > 0 && w.Monotonic < writes[i-1].Monotonic) {
			t.Fatalf("record %d is %+v", i, w)
		}
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, lineLength*3+5); err != nil {
		t.Fatal(err)
	}
	if writes, err := Read(path); err == nil || len(writes) != 3 {
		t.Errorf("a torn log: %d writes, %v", len(writes), err)
	}
	if err := two.Append("dpu-1", 0, 1); err == nil {
		t.Error("a torn log takes another record")
	}
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestShort(t *testing.T) {
	long := strings.Repeat("worker", 20)
	for _, name := range []string{"", "a b", "tab\t", "é", long, long + "2", "\n"} {
		got := Short(name)
		if len(got) > MaxName || len(strings.Fields(got)) != 1 || got == name {
			t.Errorf("%q becomes %q", name, got)
		}
	}
	if Short(long) == Short(long+"2") {
		t.Error("two long names become one")
	}
	if got := Short("dpu-1"); got != "dpu-1" {
		t.Errorf("dpu-1 becomes %q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("0000000000000001 dpu-1                            0000000000000000 0000000000000512 0000000000000000001\n")
	f.Add("x")
	f.Fuzz(func(t *testing.T, in string) {
		writes, err := parse(strings.NewReader(in))
		if err == nil && len(writes)*lineLength != len(in) {
			t.Fatalf("%q: %d writes", in, len(writes))
		}
	})
}
