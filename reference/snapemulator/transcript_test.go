package snapemulator_test

import (
	"bufio"
	"bytes"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

var update = flag.Bool("update", false, "write the answers seen into testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// talk sends one line and returns the answer's line.
func talk(t *testing.T, c net.Conn, r *bufio.Reader, line string) string {
	t.Helper()
	if _, err := c.Write([]byte(line)); err != nil {
		t.Fatal(err)
	}
	got, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("after %s: %q, %v", line, got, err)
	}
	return strings.TrimSuffix(got, "\n")
}

func dial(t *testing.T, socket string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

// TestTranscripts plays each file of testdata against a fresh service, on one
// connection and without newlines after requests, as DPF's node driver sends
// them. Lines that begin with > are requests, with < answers, to the letter;
// $FILE stands for the file behind the bdev, $DIR for the directory of what is
// reached by NVMe over Fabrics. Those named hotplug_ play against
// one with ports for hot-plugged functions.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			o := snapemulator.Options{VFs: 2}
			if strings.HasPrefix(filepath.Base(file), "hotplug_") {
				o.PFs, o.Hotplug.Slots = 2, snapemulator.DefaultHotplugSlots
			}
			volume := snapemulatortest.File(t, 1<<20)
			o.FabricDir = filepath.Dir(volume)
			if err := os.Link(volume, filepath.Join(o.FabricDir, "nqn.2020-04.io.spdk.csi:uuid:1.img")); err != nil {
				t.Fatal(err)
			}
			s := snapemulatortest.Start(t, o)
			c, r := dial(t, s.Options.Socket)
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var seen bytes.Buffer
			for line := range strings.Lines(string(raw)) {
				if !strings.HasPrefix(line, "> ") {
					if strings.HasPrefix(line, "#") {
						seen.WriteString(line)
					}
					continue
				}
				seen.WriteString(line)
				request := strings.ReplaceAll(strings.TrimSpace(line[2:]), "$FILE", volume)
				seen.WriteString("< " + strings.NewReplacer(volume, "$FILE", o.FabricDir, "$DIR").Replace(talk(t, c, r, request)) + "\n")
			}
			if *update {
				if err := os.WriteFile(file, seen.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(string(raw), seen.String()); d != "" && !*update {
				t.Error(d)
			}
		})
	}
}
