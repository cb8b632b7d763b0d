package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// TestNoClient holds the program to its promise: no client of any cluster is
// linked into it, so there is no credential that it could use.
func TestNoClient(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		for _, client := range []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "github.com/moor-storage/moor/internal/kube"} {
			if dep == client || strings.HasPrefix(dep, client+"/") {
				t.Errorf("moor-host links %s", dep)
			}
		}
	}
}

func TestWords(t *testing.T) {
	empty := []string{"--sysfs-root=" + t.TempDir(), "--dev-root=" + t.TempDir()}
	cases := map[string]struct {
		args  []string
		words string
	}{
		"list":        {[]string{"list"}, "ADDRESS"},
		"list, JSON":  {[]string{"list", "--json"}, "null"},
		"prepare":     {[]string{"prepare"}, ""},
		"bad device":  {[]string{"mount", "sda", "/mnt"}, "want a UUID, tag=<tag>, or a PCI address"},
		"bad dir":     {[]string{"mount", "3b:00.2", "mnt"}, "want an absolute path"},
		"bad type":    {[]string{"mount", "3b:00.2", "/mnt", "--fstype=ntfs"}, "ext4, xfs"},
		"bad tag":     {[]string{"mount", "tag=a/b", "/mnt"}, "without blanks and slashes"},
		"tagged ext4": {[]string{"mount", "tag=files", "/mnt", "--fstype=ext4"}, "is one already"},
		"no such tag": {[]string{"mount", "tag=files", "/mnt/x", "--wait=10ms"}, "does not show device tag=files"},
		"absent":      {[]string{"mount", "3b:00.2", "/mnt/x", "--wait=10ms"}, "--wait of 10ms is over"},
		"no table":    {[]string{"watch", "--table=/nowhere"}, "see --table"},
		"period":      {[]string{"umount", "/nowhere", "--period=1ms"}, "--period"},
		"not mounted": {[]string{"umount", "/nowhere/at/all"}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cmd := root()
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetArgs(append(c.args, empty...))
			text := ""
			if err := cmd.ExecuteContext(t.Context()); err != nil {
				text = err.Error()
			}
			if text += out.String(); !strings.Contains(text, c.words) || c.words == "" && text != "" {
				t.Fatalf("got %q, want %q", text, c.words)
			}
		})
	}
}
